"""The task `publish` registers the tables of the last commit, after the outputs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from support.catalogs import DeclaredCatalog, FakeCatalog, FakeRegistrar
from tallystick.outputs.files import FileOutput
from tallystick.outputs.registrations import SqlRegistration
from unit.airflow.bench import Bench, bench
from unit.airflow.test_publishing import run_of, seen

__all__ = ["bench"]

pytestmark = pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")


@dataclass(frozen=True, kw_only=True)
class OwnCatalog(DeclaredCatalog):
    """A kind of the user's own."""

    catalog: FakeCatalog
    away: bool = False

    def open(self) -> FakeRegistrar:
        """Open the registrar, as docs/reference/registrations.md describes."""
        if self.away:
            raise ConnectionError("no route")
        return FakeRegistrar(self.catalog)


@pytest.fixture
def catalog(bench: Bench) -> FakeCatalog:
    """Return the catalog in which the pipeline's tables are registered."""
    found = FakeCatalog()
    bench.pipeline = replace(bench.pipeline, registrations=[OwnCatalog(catalog=found)])
    return found


def test_a_dag_with_registrations_has_the_task_publish(bench: Bench, catalog: FakeCatalog) -> None:
    assert [t.task_id for t in bench.dag.topological_sort()][-1] == "publish"


def test_publish_registers_the_last_commit_once(
    bench: Bench, catalog: FakeCatalog, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_of(1)
    bench.run_all(run)
    assert catalog.pointers == {}
    returned: Any = run.execute(bench.task("publish"))
    assert returned["registered"].keys() == {"company"}
    assert sorted(catalog.pointers) == ["dead_letters", "events", "per_kind"]
    assert f"registered version {returned['registered']['company']} in company: 3 tables" in (
        capsys.readouterr().out
    )
    assert run.execute(bench.task("publish")) == {"published": {}}
    assert "registration company has the last commit already" in capsys.readouterr().out
    assert catalog.numbers("events") == [0]


def test_a_catalog_that_does_not_answer_delays_no_output_and_is_tried_again(
    bench: Bench, tmp_path: Path
) -> None:
    catalog = FakeCatalog()
    bench.pipeline = replace(
        bench.pipeline,
        outputs=[FileOutput(name="files", table="events", folder=str(tmp_path / "out"))],
        registrations=[OwnCatalog(catalog=catalog, away=True)],
    )
    run = run_of(1)
    bench.run_all(run)
    with pytest.raises(AirflowException, match="registration company: ConnectionError: no route"):
        run.execute(bench.task("publish"))
    assert seen(tmp_path / "out").keys() == {"20130101"}
    bench.pipeline = replace(bench.pipeline, registrations=[OwnCatalog(catalog=catalog)])
    run.execute(bench.task("publish"))
    assert sorted(catalog.pointers) == ["dead_letters", "events", "per_kind"]


def test_an_output_that_fails_delays_no_registration(
    bench: Bench, catalog: FakeCatalog, tmp_path: Path
) -> None:
    (tmp_path / "out").write_text("a file where the folder belongs")
    output = FileOutput(name="files", table="events", folder=str(tmp_path / "out"))
    bench.pipeline = replace(bench.pipeline, outputs=[output])
    run = run_of(1)
    bench.run_all(run)
    with pytest.raises(AirflowFailException, match="output files"):
        run.execute(bench.task("publish"))
    assert sorted(catalog.pointers) == ["dead_letters", "events", "per_kind"]


def test_a_connection_that_is_not_defined_is_named(bench: Bench) -> None:
    declared = SqlRegistration(
        name="company", catalog="company", namespace="small", postgres="main"
    )
    bench.pipeline = replace(bench.pipeline, registrations=[declared])
    run = run_of(1)
    bench.run_all(run)
    with pytest.raises(AirflowFailException, match="TALLYSTICK_POSTGRES_MAIN"):
        run.execute(bench.task("publish"))
