"""The demo and the running examples: how each is played on the embedded stack, and how it is checked.

demo       `make demo`: a year of flights through every button of Airflow
runner     `make example NAME=...`: one start of the stack, each example plainly and under a kill
checks     what the checks share; a check imports nothing of tallystick
files, ... one folder per example: `play` produces its input and drives its DAG, `check` compares what came out

Their DAGs are in dags/ and dags/examples/, their jobs in spark_jobs/ and spark_jobs/examples/: where a user's own go.
"""
