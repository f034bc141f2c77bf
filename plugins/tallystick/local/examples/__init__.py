"""The running examples of `make example NAME=...`: each produces its input, drives its DAG, and is judged otherwise.

registry    which examples there are: one line each
__main__    the course: one start of the stack, each example plainly and under a kill, the closing table
scene       what an example plays on: the stack, its own DAG and job files, the buttons of Airflow
produce     sends records in transactions of any end, and writes down what was sent
strike      kills the publishing task between `begun` and `published`
mail        the mail server of an example, with a log of what it has taken
receiver    the receiver of an example's HTTP calls, which acts once per idempotency key
files, ...  one module per example; dags/examples/ and spark_jobs/examples/ hold what it runs
judges      one module per example: compares what came out with what was sent; imports nothing of tallystick
"""
