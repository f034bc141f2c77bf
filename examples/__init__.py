"""The demo and the running examples: how each runs on the embedded stack, and how its result is checked.

demo       `make demo`: a year of flights through every button of Airflow
runner     `make example NAME=...`: starts the stack once, runs each example without a kill and with one
checks     shared parts of the checks; a check imports nothing of tallystick
files, ... one folder per example: `scenario` produces its input and drives its DAG, `check` compares the result

Their DAGs are in dags/ and dags/examples/, their jobs in spark_jobs/ and spark_jobs/examples/, as those of a user.
"""
