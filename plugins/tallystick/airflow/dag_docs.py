"""The documentation of a pipeline's DAG and of its tasks, as Airflow shows it on their pages."""

from __future__ import annotations

from tallystick.pipeline import Pipeline

_DAG_DOC = """\
### {name}: {topics} to {tables}

Lake `{warehouse}`, job `{job}`. Each record of each committed interval is accounted for exactly once, even if runs are
repeated, killed or out of order. `tally status` shows intervals and gaps.

| you press | what happens |
| --- | --- |
| nothing: the schedule | the run's data interval is planned, staged and committed |
| **Backfill**, any span, forwards or backwards | everything that is not committed yet is committed; committed intervals \
remain unchanged |
| **Clear**, any task, at any time | nothing, if nothing changed; after a change of job or declaration, clear `{first}`: \
the run's interval is replaced in every table at once |
| **Trigger**, the form unchanged | the time from the end of the ledger to now is committed |
| **Trigger** with *From* and *To* | everything between them that is not committed yet is committed |
| **Trigger** with mode `replace`, *From* and *To* | every committed interval between them is replaced |
| **Trigger** with mode `refresh` | every interval whose lookback has changed since is replaced |
| **Trigger** with mode `dead_letters` | every interval that contains dead letters is replaced |

In the Trigger form leave *Logical Date* as proposed: a run without *From* and *To* ends there, now at the latest. \
A *Data Interval* typed there counts as *From* and *To*; one that Airflow infers does not. In a backfill leave the \
parameters *From* and *To* empty: each of its runs has the interval of its own date. The Backfill form sends its \
parameters only if *Override parameters on existing runs* is ticked (Airflow 3.3); without that not even the mode.

If two runs request the same span, the first gets it; the second logs that and succeeds. Consumers of \
the Asset skip versions that they have processed: a cleared commit emits its event again.
"""
PLAN_DOC = "Reads the ledger and Kafka's offsets, grants this run its gaps, writes one plan per gap to S3. No Spark."
STAGE_DOC = (
    "One spark-submit for all plans of the run: reads exactly the planned offsets and writes Parquet under its own "
    "prefix, invisible to readers. Starts no Spark if everything is committed."
)
COMMIT_DOC = "Checks the staged files, and swaps the root: all tables, dead letters and offsets at once, or nothing."
REPLAY_DOC = (
    "Plans, stages and commits the run in one task. Reads exactly the planned offsets, writes Parquet under its own "
    "prefix, invisible to readers, and swaps the root: all tables, dead letters and offsets at once, or nothing."
)
PUBLISH_DOC = """\
Publishes all committed rows that are pending for outputs outside the lake, of any run, each row once. Completes \
publications in progress first. Then registers the tables of the last commit in the declared catalogs.
"""


def description(pipeline: Pipeline) -> str:
    """Return the description of a DAG that has none of its own."""
    return f"Exactly-once replay of {', '.join(_topics(pipeline))} into {pipeline.warehouse}"


def page(pipeline: Pipeline, *, first: str) -> str:
    """Return the text of the DAG's page. `first`: the id of the task to clear after a change."""
    return _DAG_DOC.format(
        name=pipeline.name,
        topics=", ".join(f"`{name}`" for name in _topics(pipeline)),
        tables=", ".join(
            [f"`{t.name}`" for t in pipeline.tables] + [f"`{t.table}`" for t in pipeline.patterns]
        ),
        warehouse=pipeline.warehouse,
        job=pipeline.job,
        first=first,
    )


def _topics(pipeline: Pipeline) -> list[str]:
    """Return the names and the patterns of the topics."""
    return [t.name for t in pipeline.inputs] + [t.pattern for t in pipeline.patterns]
