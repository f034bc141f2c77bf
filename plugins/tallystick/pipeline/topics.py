"""Topics as a user declares them: the format of their values, and of their keys and headers if these are columns, too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tallystick.format import keys
from tallystick.pipeline.columns import Column, refuse, unique
from tallystick.pipeline.debezium import DEBEZIUM, Debezium
from tallystick.pipeline.formats import JSON, Csv, Format, Json, Raw, Text
from tallystick.pipeline.registry_options import registry_options
from tallystick.pipeline.schema_formats import Avro, Protobuf

DeclaredFormat = Json | Avro | Protobuf | Csv | Debezium | Text | Raw | Format

HEADERS_TYPE = "map<string, list<optional binary>>"
"""The type of a column of headers: a record may have several headers of one name, and a header may have no value."""
_OMITTED = {
    "decode": "omit decode for JSON with the columns of the first table; Text() or Raw() for whole values",
    "key": "omit key if the bytes in `_key` are enough; Text() or Raw() for whole keys",
}


@dataclass(frozen=True, slots=True)
class Topic:
    """A Kafka topic, and the columns of its records: those of the values and, if declared, of the keys and headers.

    `decode` is the format of the values. None: JSON with those columns of the pipeline's first table that are not read
    from the key or the headers. `key` is the format of the keys. None: a job gets keys only as bytes, in `_key`.
    `headers` is the name of a column with all headers of the record, a map from a name to its values in their order.
    None: headers are not read. `begin`: when the topic is planned for the first time, it begins with the records from
    that time on; None: with all that the log has of the interval, or, if the ledger has intervals, with all of the log.
    Raises InvalidPipeline if two columns have the same name.
    """

    name: str
    decode: DeclaredFormat | None = None
    key: DeclaredFormat | None = None
    headers: str | None = None
    begin: datetime | None = None

    def __post_init__(self) -> None:
        keys.check_topic(self.name)
        self._check_format("decode")
        self._check_format("key")
        if self.headers is not None:
            if not isinstance(self.headers, str):
                raise refuse(
                    f"topic {self.name}: headers: expected the name of a column, found {self.headers!r}.",
                    'write headers="headers", or omit it.',
                )
            unique([headers_column(self.headers)], f"topic {self.name}: headers")
        if self.begin is not None:
            try:
                keys.check_instant(self.begin)
            except ValueError as error:
                raise refuse(
                    f"topic {self.name}: begin: {error}.", "use a datetime with tzinfo=UTC."
                ) from error
        self._check_names()

    @property
    def follows(self) -> bool:
        """True if the columns of the values are those of their schemas in a registry."""
        return isinstance(self.decode, Avro | Protobuf) and self.decode.follows

    def registry_formats(self) -> tuple[tuple[str, str, DeclaredFormat], ...]:
        """Return (topic, `value` or `key`, format) of each format that reads its schemas from a registry."""
        both = (("value", self.decode), ("key", self.key))
        return tuple(
            (self.name, what, declared)
            for what, declared in both
            if declared is not None and registry_options(declared) is not None
        )

    @property
    def declared_columns(self) -> tuple[Column, ...]:
        """The columns of the records that are declared with the topic: of its values, its keys and its headers."""
        values = () if self.decode is None else _columns(self.decode) or ()
        return (*values, *(column for _, column in self._beyond_values()))

    @property
    def has_columns(self) -> bool:
        """True if the columns of the values are declared with the topic, or are those of their schemas."""
        return self.follows or (self.decode is not None and _columns(self.decode) is not None)

    @property
    def key_format(self) -> Format | None:
        """The format of the keys in the form that a plan contains; None if they are not decoded."""
        return None if self.key is None else _planned(self.key, ())

    def value_format(self, first_table: Sequence[Column]) -> Format:
        """Return the format of the values in the form that a plan contains.

        `first_table` has the columns if the format declares none; raises InvalidPipeline if the key and the headers have
        all of them.
        """
        if self.decode is not None and _columns(self.decode) is not None:
            return _planned(self.decode, ())
        elsewhere = {column.name.lower() for _, column in self._beyond_values()}
        left = [column for column in first_table if column.name.lower() not in elsewhere]
        if not left:
            raise refuse(
                f"topic {self.name}: expected columns of the first table that are read from the values, found all of "
                "them in key and headers.",
                "declare the columns of the values: decode=Json([Column(...), ...]).",
            )
        return Json(left).format if self.decode is None else _planned(self.decode, left)

    def _check_format(self, argument: str) -> None:
        found = getattr(self, argument)
        if isinstance(found, Format) and found.name == JSON:
            Json.of(found)  # its options are checked here, the others' by their decoder
        if isinstance(found, Format) and found.name == DEBEZIUM:
            Debezium.of(found)
        if found is not None and not isinstance(found, DeclaredFormat):
            raise refuse(
                f"topic {self.name}: unknown {argument}={found!r}.",
                "use Json([Column(...), ...]), Avro(...), Protobuf(...), Csv(...) or Debezium(...), or "
                f"{_OMITTED[argument]}. Other formats need a decoder that is installed: Format(name, [Column(...)]).",
            )
        if argument == "key" and isinstance(found, Debezium):
            raise refuse(
                f"topic {self.name}: key: expected the format of the key, found Debezium, whose events are values.",
                'declare the columns of the key: key=Json([...]), with source="payload.id" if it has the schema of Kafka '
                "Connect, or key=Avro([...], registry=...).",
            )
        if argument == "key" and found is not None and not _columns(found):
            raise refuse(
                f"topic {self.name}: key: expected the columns of the key, found none.",
                f"declare them: key={type(found).__name__}([Column(...), ...]).",
            )

    def _check_names(self) -> None:
        values = () if self.decode is None else _columns(self.decode) or ()
        if isinstance(self.decode, Debezium):
            values = self.decode.all_columns or self.decode.beyond_rows
        declared = [*(("decode", column) for column in values), *self._beyond_values()]
        arguments: dict[str, str] = {}
        for argument, column in declared:
            first = arguments.setdefault(column.name.lower(), argument)
            if first != argument:
                raise refuse(
                    f"topic {self.name}: expected each column in one of decode, key and headers, found {column.name!r} "
                    f"in {first} and {argument}.",
                    f"rename one of them, e.g. to key_{column.name}: source= of the Column names the field that it is "
                    "read from.",
                )
        if declared:
            unique([column for _, column in declared], f"topic {self.name}")

    def _beyond_values(self) -> list[tuple[str, Column]]:
        """Return the columns of the key and the headers, each with its argument."""
        found = [] if self.key is None else [("key", c) for c in _columns(self.key) or ()]
        return (
            found if self.headers is None else [*found, ("headers", headers_column(self.headers))]
        )


def rows_form(topic: Topic, first_table: Sequence[Column]) -> dict[str, Any]:
    """Return all of a topic that determines the rows, for the fingerprint: not `begin`, and no columns of schemas."""
    if topic.follows:
        assert topic.decode is not None
        # A format has columns; those of the schemas are not part of the declaration.
        decode = _planned(topic.decode, [Column("followed", "string")]).to_json() | {"columns": []}
    else:
        decode = topic.value_format(first_table).to_json()
    key = topic.key_format
    return {
        "name": topic.name,
        "decode": decode,
        "key": None if key is None else key.to_json(),
        "headers": topic.headers,
    }


def headers_column(name: str) -> Column:
    """Return the column of a topic's headers, which is never null; raises InvalidPipeline if the name is not allowed."""
    return Column(name, HEADERS_TYPE)


def _columns(declared: DeclaredFormat) -> Sequence[Column] | None:
    """Return the columns that a format declares; None if it has those of the first table."""
    if isinstance(declared, Debezium):
        return declared.all_columns
    return declared.format.columns if isinstance(declared, Text | Raw) else declared.columns


def _planned(declared: DeclaredFormat, columns: Sequence[Column]) -> Format:
    """Return a format in the form that a plan contains; `columns` are those if it declares none."""
    if isinstance(declared, Format):
        return declared
    if isinstance(declared, Avro | Protobuf | Csv | Debezium):
        return declared.planned(columns)
    return declared.format
