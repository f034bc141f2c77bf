"""`make example NAME=...`: each example produces its input and drives its DAG; an independent check follows.

registry        the examples: one line each
__main__        one start of the stack, each example without a kill and with one, the table at the end
copies          the copies of the DAG and job files that the stack's Airflow reads
harness         the stack, an example's copies of its DAG and job files, and the buttons of Airflow
produce         sends records in transactions that end in any way, and records what was sent
publisher_kill  kills the publishing task between `in_progress` and `published`
writer_kill     the moments at which the process that stages or commits is killed
"""
