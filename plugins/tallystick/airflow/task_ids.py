"""The ids of a DAG's tasks."""

from __future__ import annotations

PLAN, STAGE, COMMIT, PUBLISH = "plan", "stage", "commit", "publish"
REPLAY = "replay"
"""The task that does the steps `plan`, `stage` and `commit` of a run in one process: `replay_dag(one_task=True)`."""
