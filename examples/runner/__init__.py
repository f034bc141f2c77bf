"""`make example NAME=...`: each example produces its input, drives its DAG, and is judged by foreign code.

registry    which examples there are: one line each
__main__    the course: one start of the stack, each example plainly and under a kill, the closing table
scene       what an example plays on: the stack, its own DAG and job files, the buttons of Airflow
produce     sends records in transactions of any end, and writes down what was sent
strike      kills the publishing task between `in_progress` and `published`
"""
