"""The units that pytest-xdist gives to its workers, and their order: a file, or a folder whose tests share servers."""

from __future__ import annotations

# Each of these folders starts its servers, or imports Airflow, once, and uses one worker; or two, the second one for the
# files from the given name on.
SHARED = {
    "tests/airflow/user_actions/": None,
    "tests/kafka/": "tests/kafka/test_k",
    "tests/oracle/": None,
    "tests/postgres/": None,
    "tests/registry/": None,
    "tests/spark/": "tests/spark/test_spark_f",
    "tests/unit/airflow/": None,
}
# Its tests share nothing, and one of them takes a minute.
EACH_ANYWHERE = "tests/simulation/test_explorer.py"
# In the order of their measured cost, except that those which wait for their servers more than they compute (the user
# actions, Kafka) start together with some that only compute: then no core is idle, and at the end none waits. The other
# stacks with Airflow start when the user actions, which alone use more than a core, have probably ended.
LONGEST = (
    "tests/airflow/user_actions/",
    "tests/kafka/",
    EACH_ANYWHERE,
    "tests/simulation/",
    "tests/spark/",
    "tests/contract/test_cli_hung_servers.py",
    "tests/unit/operations/",
    "tests/airflow/",
    "tests/contract/test_store_contract_versitygw.py",
    "tests/contract/test_concurrent_commits.py",
    "tests/oracle/",
    "tests/postgres/",
    "tests/unit/airflow/",
    "tests/catalog/",
    "tests/registry/",
)


def rank_of(nodeid: str) -> int:
    """Return the place of a test in the order of LONGEST."""
    return next((i for i, start in enumerate(LONGEST) if nodeid.startswith(start)), len(LONGEST))


def unit_of(nodeid: str) -> str:
    """Return the name of a test's unit."""
    if nodeid.startswith(EACH_ANYWHERE):
        return nodeid
    for folder, second in SHARED.items():
        if nodeid.startswith(folder):
            return folder if second is None or nodeid < second else second
    return nodeid.partition("::")[0]
