"""Defines the commands of `tally` and their options. Each imports its modules when it runs, so that `--help` is fast."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tallystick.cli import check, doctor, forms, init, replay, topic
from tallystick.cli.errors import COUNTER_EXAMPLE, busy, exit_on_error, out, out_json
from tallystick.cli.forms import Form, FormOption

if TYPE_CHECKING:
    from tallystick.format.interval import Interval
    from tallystick.lake import Lake
    from tallystick.operations.verify import Demands, Proof

app = typer.Typer(
    name="tally",
    help="Show what a lake contains and what it lacks, and verify it. A lake is an s3:// URI; see "
    "`tally status --help`.",
    no_args_is_help=True,
    # A stack trace with local variables could contain secrets.
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(topic.app)
app.command()(check.check)
app.command()(doctor.doctor)
app.command()(init.init)
app.command()(replay.replay)


def _add_groups_of_other_distributions() -> None:
    """Add the command groups that other distributions declare, e.g. `tally local` of tallystick-devstack."""
    for group in sorted(entry_points(group="tallystick.commands"), key=lambda point: point.name):
        try:
            app.add_typer(group.load(), name=group.name)
        except ImportError as error:
            # A broken extension must not make `tally verify` unavailable.
            typer.echo(f"`tally {group.name}` is not available: {error}", err=True)


_add_groups_of_other_distributions()

LakeUri = typer.Argument(
    None,
    metavar="LAKE",
    help="URI of the lake, e.g. s3://lake/flights. Default: $TALLYSTICK_LAKE.",
)
LakeUris = typer.Argument(
    None,
    metavar="LAKE",
    help="URIs of lakes, e.g. s3://lake/flights. Default: $TALLYSTICK_LAKE.",
)
AsJson = typer.Option(False, "--json", help="Print JSON.")
AsOf = typer.Option(
    None,
    "--as-of",
    metavar="WHEN",
    help="Read the last commit at or before a version, e.g. 412, or an instant, e.g. 2026-11-26T10:00Z.",
)
From = typer.Option(..., "--from", metavar="DATE", help="Beginning, inclusive; UTC without offset.")
To = typer.Option(..., "--to", metavar="DATE", help="End, exclusive.")
EveryRecord = typer.Option(
    [],
    "--every-record",
    metavar="TABLE",
    help="With --deep: this table must contain each decoded record.",
)
PipelineFile = typer.Option(
    ..., "--pipeline", metavar="FILE", help="The DAG file that declares the pipeline; it is run."
)
Allow = typer.Option(
    [], "--allow", metavar="PROBLEM", help="Ignore this problem in --ok; may be repeated."
)
Only = typer.Option([], "--output", metavar="NAME", help="Only this output; may be repeated.")
Repeats = typer.Option(
    [],
    "--repeats",
    metavar="TABLE",
    help="With --deep: this table may contain several rows of one record.",
)
LakeNames = typer.Option(
    [],
    "--name",
    metavar="NAME=URI",
    help="A lake with another name than the last part of its URI; may be repeated.",
)
TokensFile = typer.Option(
    None, "--tokens", metavar="FILE", help="The SHA-256 of each token, and its lakes."
)
TlsPair = typer.Option(
    None, "--tls", metavar="CERT KEY", help="PEM files of a certificate and its key."
)


def _version(requested: bool) -> None:
    if requested:
        from tallystick.runtime.version import VERSION

        out(f"tally {VERSION}")
        raise typer.Exit


@exit_on_error
def _set_limit(timeout: str) -> None:
    from tallystick.cli import waiting

    waiting.LIMIT_S.set(waiting.seconds(timeout))


@app.callback()
def _global(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version."
    ),
    timeout: str = typer.Option(
        "60",
        "--timeout",
        metavar="SECONDS",
        envvar="TALLYSTICK_TIMEOUT",
        help="Time limit for one answer of the store when reading.",
    ),
) -> None:
    del version
    _set_limit(timeout)


@app.command()
@exit_on_error
def status(
    lake: str | None = LakeUri,
    limit: int | None = typer.Option(
        None,
        "--limit",
        "-n",
        min=0,
        help="Number of the latest intervals to show; 0: all. Default: 50; all for csv and json.",
    ),
    ok: bool = typer.Option(
        False, "--ok", help="Exit with 1 if there is any problem that needs a person."
    ),
    allow: list[str] = Allow,
    kafka: str | None = typer.Option(
        None, "--kafka", metavar="NAME", help="Connection for the lag. Default: the latest plan's."
    ),
    no_kafka: bool = typer.Option(False, "--no-kafka", help="Do not read the lag from Kafka."),
    form: Form | None = FormOption,
    as_json: bool = AsJson,
) -> None:
    """Show intervals, gaps and how to fill them, grants and how to end them, losses and lag."""
    from tallystick.cli import json_output, lag, rows, status_text
    from tallystick.operations.lag import read_lag
    from tallystick.operations.status import problems, read_status
    from tallystick.runtime.loading import loading

    form = forms.chosen(form, as_json=as_json)
    opened = _open(lake)
    shown = limit if limit is not None else 50 if form.for_people else 0
    # A large ledger is a million objects, which collections of garbage would visit again and again.
    with busy("reading the ledger"), loading():
        answer = read_status(opened, newest=shown or None)
    found = problems(answer, allowed=allow)
    behind = None
    if not no_kafka and answer.read_to:
        with busy("reading Kafka"):
            behind = read_lag(opened, answer, connection=kafka, read_ends=lag.ends_within_limit)

    def document() -> Any:
        return json_output.status(answer, problems=found, lag=behind, limit=shown)

    forms.write(
        form,
        table=lambda: status_text.status(
            answer, limit=shown, problems=found if ok else None, lag=behind
        ),
        document=document,
        columns=rows.STATUS,
        rows=lambda: rows.status(document()),
    )
    if ok and found:
        raise typer.Exit(COUNTER_EXAMPLE)


@app.command()
@exit_on_error
def metrics(
    lakes: list[str] = LakeUris,
    kafka: str | None = typer.Option(
        None, "--kafka", metavar="NAME", help="Connection for the lag. Default: the latest plan's."
    ),
    no_kafka: bool = typer.Option(False, "--no-kafka", help="Do not read the lag from Kafka."),
    serve: str | None = typer.Option(
        None,
        "--serve",
        metavar="[HOST:]PORT",
        help="Serve them on /metrics, without a login. Default host: 127.0.0.1.",
    ),
    push: str | None = typer.Option(
        None, "--push", metavar="URL", help="Send them to an OpenTelemetry collector (OTLP/HTTP)."
    ),
    every: str | None = typer.Option(
        None,
        "--every",
        metavar="TIME",
        help="With --serve: read again after this time (30s). With --push: send again, not once.",
    ),
    as_json: bool = AsJson,
) -> None:
    """Show measurements of lakes in Prometheus' text format; serve them, or send them to a collector."""
    from tallystick.cli import metrics as measuring

    exports = measuring.Exports(serve=serve, push=push, every=every, as_json=as_json)
    measuring.run(lakes, kafka=kafka, no_kafka=no_kafka, exports=exports)


@app.command()
@exit_on_error
def catalog(
    lakes: list[str] = LakeUris,
    names: list[str] = LakeNames,
    host: str = typer.Option(
        "127.0.0.1", "--host", metavar="HOST", help="Address; others than loopback need --tokens."
    ),
    port: int = typer.Option(8181, "--port", metavar="PORT", min=0, max=65535, help="0: any."),
    tokens: Path | None = TokensFile,
    tls: tuple[Path, Path] | None = TlsPair,
    no_client_config: bool = typer.Option(
        False, "--no-client-config", help="Do not send clients the endpoint and region of S3."
    ),
    new_token: bool = typer.Option(
        False, "--new-token", help="Print a token and its line for --tokens, and serve nothing."
    ),
    as_json: bool = AsJson,
) -> None:
    """Serve lakes as a read-only Iceberg REST catalog: each lake is a namespace."""
    from tallystick.cli import catalog as serving

    if new_token:
        serving.print_new_token(lakes or (), names, as_json=as_json)
        return
    options = serving.CatalogOptions(
        host=host,
        port=port,
        tokens=tokens,
        tls=tls,
        client_config=not no_client_config,
        as_json=as_json,
    )
    serving.run(lakes or (), names, options)


@app.command()
@exit_on_error
def log(
    lake: str | None = LakeUri,
    limit: int = typer.Option(
        20, "--limit", "-n", min=0, help="Number of the latest commits to show; 0: all."
    ),
    form: Form | None = FormOption,
    as_json: bool = AsJson,
) -> None:
    """Show commits, newest first."""
    from tallystick.cli import json_output, rows, text
    from tallystick.operations.status import read_log

    form = forms.chosen(form, as_json=as_json)
    with busy("reading the commits"):
        answer = read_log(_open(lake), limit=limit or None)
    forms.write(
        form,
        table=lambda: text.log(answer),
        document=lambda: json_output.log(answer),
        columns=rows.LOG,
        rows=lambda: rows.log(json_output.log(answer)),
    )


@app.command()
@exit_on_error
def tables(
    lake: str | None = LakeUri,
    files: bool = typer.Option(
        False, "--files", help="Show files by size, and all objects with the reason to keep them."
    ),
    reader_grace: str | None = typer.Option(
        None, "--reader-grace", metavar="TIME", help="With --files: that of gc. Default: as gc's."
    ),
    as_of: str | None = AsOf,
    catalog: str | None = typer.Option(
        None, "--catalog", metavar="URL", help="With --json: addresses in this `tally catalog`."
    ),
    form: Form | None = FormOption,
    as_json: bool = AsJson,
) -> None:
    """Show metadata locations, columns, rows and files."""
    from tallystick.cli import json_output, rows, text
    from tallystick.cli.as_of import parsed
    from tallystick.cli.by_name import catalog_names
    from tallystick.errors import InvalidRequest
    from tallystick.operations.status import read_tables

    form = forms.chosen(form, as_json=as_json)
    if catalog is not None and form is not Form.JSON:
        raise InvalidRequest("--catalog needs --json.", hint="add --json.")
    if files or reader_grace is not None:
        _table_files(lake, reader_grace, form, files=files, as_of=as_of, catalog=catalog)
        return
    when = parsed(as_of)
    with busy("reading the tables' metadata"):
        answer = read_tables(_open(lake), as_of=when)

    def document() -> Any:
        return json_output.tables(answer, catalog_names(answer, catalog))

    forms.write(
        form,
        table=lambda: text.tables(answer),
        document=document,
        columns=rows.TABLES,
        rows=lambda: rows.tables(document()),
    )


def _table_files(
    lake: str | None,
    reader_grace: str | None,
    form: Form,
    *,
    files: bool,
    as_of: str | None,
    catalog: str | None,
) -> None:
    from tallystick.cli import table_files
    from tallystick.cli.by_name import catalog_names
    from tallystick.errors import InvalidRequest

    if not files:
        raise InvalidRequest("--reader-grace needs --files.", hint="add --files.")
    if as_of is not None:
        raise InvalidRequest(
            f"--files shows what is kept now, and --as-of {as_of} an older version.",
            hint="use only one of them.",
        )
    answer = table_files.found(_open(lake), reader_grace)
    forms.write(
        form,
        table=lambda: table_files.as_text(answer),
        document=lambda: table_files.as_json(answer, catalog_names(answer, catalog)),
        columns=table_files.COLUMNS,
        rows=lambda: table_files.as_rows(answer),
    )


@app.command()
@exit_on_error
def sql(
    statement: str = typer.Argument(
        metavar="SELECT", help='One statement, e.g. "select count(*) from flights".'
    ),
    lake: str | None = LakeUri,
    form: Form | None = FormOption,
    as_of: str | None = AsOf,
    timeout: str = typer.Option(
        "5m", "--timeout", metavar="TIME", help="Time limit of the statement; or never."
    ),
    as_json: bool = AsJson,
) -> None:
    """Run one SELECT on a consistent snapshot of all tables."""
    from tallystick.cli.as_of import parsed
    from tallystick.cli.gc import duration
    from tallystick.cli.sql import answer
    from tallystick.errors import InvalidRequest

    limit = None if timeout == "never" else duration(timeout, "--timeout")
    if limit is not None and not limit:
        raise InvalidRequest(
            f"--timeout: expected 1s or more, found {timeout!r}.", hint="use 1s or more, or never."
        )
    form = forms.chosen(form, as_json=as_json)
    when = parsed(as_of)
    answer(_open(lake), statement, form=form, as_of=when, timeout=limit)


@app.command(name="dead-letters")
@exit_on_error
def dead_letters(
    lake: str | None = LakeUri,
    kind: str | None = typer.Option(None, "--kind", metavar="KIND", help="Only of this kind."),
    field: str | None = typer.Option(None, "--field", metavar="FIELD", help="Only of this field."),
    start: str | None = typer.Option(
        None, "--from", metavar="DATE", help="Only of intervals that end after it; with --to."
    ),
    end: str | None = typer.Option(
        None, "--to", metavar="DATE", help="Only of intervals that begin before it; with --from."
    ),
    limit: int = typer.Option(
        1, "--limit", "-n", min=0, help="Number of records to show of each kind and field."
    ),
    form: Form | None = FormOption,
    as_json: bool = AsJson,
) -> None:
    """Show dead letters by kind and field, with samples, and the command that replaces their intervals."""
    from tallystick.cli import dead_letters as letters
    from tallystick.cli.errors import bars
    from tallystick.operations.dead_letters import read_dead_letters

    form = forms.chosen(form, as_json=as_json)
    asked = letters.wanted(kind, field, start, end, limit)
    opened = _open(lake)
    with bars() as watch:
        found = read_dead_letters(opened, asked, watch=watch)
    forms.write(
        form,
        table=lambda: letters.as_text(found, asked),
        document=lambda: letters.as_json(found, asked),
        columns=letters.COLUMNS,
        rows=lambda: letters.as_rows(found),
    )


@app.command()
@exit_on_error
def plan(
    lake: str | None = LakeUri,
    start: str = From,
    end: str = To,
    replace: bool = typer.Option(False, "--replace", help="As a run with mode=replace."),
    take_over: bool = typer.Option(False, "--take-over", help="As a run with take_over=true."),
    as_json: bool = AsJson,
) -> None:
    """Show what a new run would do with an interval, and why. Nothing is granted."""
    from tallystick.cli import json_output, text
    from tallystick.operations.preview import preview

    interval = _interval(start, end)
    with busy("reading the ledger"):
        found = preview(_open(lake), interval, replace=replace, take_over=take_over)
    if as_json:
        out_json(json_output.preview(found))
    else:
        out(text.preview(found))


@app.command()
@exit_on_error
def release(
    lake: str | None = LakeUri, start: str = From, end: str = To, as_json: bool = AsJson
) -> None:
    """Cancel the grant of an interval if its run will never commit it. Committed rows remain."""
    from tallystick.cli import json_output, text
    from tallystick.operations.release import release as cancel

    interval = _interval(start, end)
    with busy("cancelling the grant"):
        found = cancel(_open(lake, writes=True), interval)
    if as_json:
        out_json(json_output.released(found))
    else:
        out(text.released(found))


@app.command()
@exit_on_error
def publish(
    lake: str | None = LakeUri,
    file: Path = PipelineFile,
    only: list[str] = Only,
    as_json: bool = AsJson,
) -> None:
    """Publish the committed rows that are pending for outputs, as each run's publish task does."""
    from tallystick.cli import json_output
    from tallystick.cli import publish as publishing

    answer = publishing.published(_open(lake, writes=True), file, only)
    if as_json:
        out_json(json_output.published(answer))
    else:
        out(publishing.text(answer))
    if answer.failed:
        raise answer.failed[0].error


@app.command()
@exit_on_error
def gc(
    lake: str | None = LakeUri,
    delete: bool = typer.Option(False, "--delete", help="Delete; otherwise nothing is changed."),
    reader_grace: str | None = typer.Option(
        None,
        "--reader-grace",
        metavar="TIME",
        help="Keep versions that were current within it. Default: as declared, or 24h.",
    ),
    cancel_after: str = typer.Option(
        "7d", "--cancel-after", metavar="TIME", help="Cancel grants planned longer ago; or never."
    ),
    as_json: bool = AsJson,
) -> None:
    """Show objects that nothing needs any more, by kind and bytes; delete them with --delete."""
    from tallystick.cli import gc as collecting
    from tallystick.cli import json_output

    found = collecting.collected(
        _open(lake, writes=delete),
        delete=delete,
        reader_grace=None
        if reader_grace is None
        else collecting.duration(reader_grace, "--reader-grace"),
        cancel_after=None
        if cancel_after == "never"
        else collecting.duration(cancel_after, "--cancel-after"),
    )
    if as_json:
        out_json(json_output.collection(found))
    else:
        out(collecting.text(found))


CompactedTables = typer.Option([], "--table", metavar="NAME", help="Default: all tables.")


@app.command()
@exit_on_error
def compact(
    lake: str | None = LakeUri,
    table: list[str] = CompactedTables,
    older_than: str = typer.Option(
        "24h", "--older-than", metavar="TIME", help="Intervals that ended longer ago."
    ),
    target_size: str | None = typer.Option(
        None,
        "--target-size",
        metavar="SIZE",
        help="Of a shared file, with KB, MB or GB; default: the table's file_size_bytes.",
    ),
    min_files: int = typer.Option(
        5, "--min-files", metavar="COUNT", help="Small files that are worth a shared file."
    ),
    dry_run: bool = typer.Option(False, "--dry-run", help="Only show what would be done."),
    as_json: bool = AsJson,
) -> None:
    """Rewrite small files of committed intervals into files of a target size; no row changes."""
    from tallystick.cli import compact as compacting
    from tallystick.cli.gc import duration

    opened = _open(lake, writes=not dry_run)
    wanted = compacting.options(
        opened,
        tables=table,
        older_than=duration(older_than, "--older-than"),
        target=target_size,
        min_files=min_files,
    )
    found = compacting.compacted(opened, wanted, dry_run=dry_run)
    if as_json:
        out_json(found.to_json())
    else:
        out(compacting.text(found))


@app.command()
@exit_on_error
def show(
    what: str = typer.Argument(
        metavar="OBJECT", help="A key, e.g. plans/.../....json or root.json, or a whole address."
    ),
    lake: str | None = LakeUri,
    as_json: bool = AsJson,
) -> None:
    """Show a plan, report, commit record, ledger page or the root, checked against its format."""
    import json

    from tallystick.operations.read_object import read_object, split_address

    named, key = split_address(what)
    found = read_object(_open(named or lake), key)
    if as_json:
        out_json(found)
    else:
        out(json.dumps(found, indent=2, ensure_ascii=False))


@app.command()
@exit_on_error
def probe(lake: str | None = LakeUri, as_json: bool = AsJson) -> None:
    """Check that a store supports everything that the commit protocol needs, with scratch objects."""
    import uuid

    from tallystick.cli import json_output, text
    from tallystick.cli.waiting import ServerCalls, notice_s
    from tallystick.format import keys
    from tallystick.store.probe import prove_conditional_writes

    store = _open(lake).store
    # Each try of a write is short; the probe makes several.
    with ServerCalls(store.uri, notice_s=notice_s()).watched("testing conditional writes"):
        found = prove_conditional_writes(
            store,
            scratch=keys.probe(uuid.uuid4().hex),
            watch=None if as_json else lambda step: out(text.probe_step(step)),
        )
    if as_json:
        out_json(json_output.probe(found))
    else:
        out("\n" + text.probed(found))


@app.command()
@exit_on_error
def verify(
    lake: str | None = LakeUri,
    deep: bool = typer.Option(False, "--deep", help="Read the lineage of every row too."),
    every_record: list[str] = EveryRecord,
    repeats: list[str] = Repeats,
    as_json: bool = AsJson,
) -> None:
    """Prove that the lake contains what its ledger records. Exit with 1 if it does not."""
    from tallystick.cli import json_output, text
    from tallystick.errors import InvalidRequest
    from tallystick.operations.verify import Demands

    if (every_record or repeats) and not deep:
        raise InvalidRequest("--every-record and --repeats need --deep.", hint="add --deep.")
    demands = Demands(every_record=frozenset(every_record), repeats=frozenset(repeats))
    answer = _verify(_open(lake), deep=deep, demands=demands)
    if as_json:
        out_json(json_output.proof(answer))
    else:
        for check in answer.checks:
            out(text.check(check))
        out("\n" + text.proof(answer))
    if not answer.proven:
        raise typer.Exit(COUNTER_EXAMPLE)


def _verify(lake: Lake, *, deep: bool, demands: Demands) -> Proof:
    """Run the verification, with a progress bar on a terminal."""
    from tallystick.cli.errors import bars
    from tallystick.operations.verify import verify as prove

    with bars() as watch:
        return prove(lake, deep=deep, demands=demands, watch=watch)


def _open(lake: str | None, *, writes: bool = False) -> Lake:
    from tallystick.cli.lake_argument import open_lake

    return open_lake(lake, writes=writes)


def _interval(start: str, end: str) -> Interval:
    from tallystick.format.interval import Interval
    from tallystick.operations.run_request import parse_params

    params = parse_params({"from": start, "to": end})
    assert params.start is not None
    assert params.end is not None
    return Interval(start=params.start, end=params.end)
