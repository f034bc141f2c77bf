"""The use case `check`: what would make a run of a pipeline fail, or its result useless, before the first run.

finding    a finding and its state
schedule   how many runs a DAG starts
topics     topics and retention
lake       bucket, owner of the lake, columns
dry_run    a sample through decoder and transform
records    the findings of a dry run
"""
