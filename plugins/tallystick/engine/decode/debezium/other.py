"""Records that are no change events: what Debezium writes to other topics, which a transform can have put into one.

They are found by their fields (io.debezium.schema.SchemaFactory, of Debezium 3): a schema change has the value of
schemaHistoryConnectorValueSchema, a transaction that of transactionValueSchema, a heartbeat that of heartbeatValueSchema.
"""

from __future__ import annotations

from collections.abc import Collection

from tallystick.engine.decode.decoder import Reason
from tallystick.engine.decode.json.parsed import JsonObject, parsed_object
from tallystick.errors import listed

SCHEMA_CHANGE, TRANSACTION, HEARTBEAT, NO_OP = "schema_change", "transaction", "heartbeat", "op"
KNOWN = (SCHEMA_CHANGE, TRANSACTION, HEARTBEAT)
_NAMES_SHOWN = 5


def reason_of_text(text: bytes) -> Reason:
    """Return the reason for a JSON text without an operation; raises MismatchError if it is no JSON object."""
    parsed = parsed_object(text, with_text=False)
    fields = dict(parsed.pairs)
    inside = fields.get("payload")
    return reason_of_fields(
        [name for name, _ in inside.pairs] if isinstance(inside, JsonObject) else fields
    )


def reason_of_fields(names: Collection[str]) -> Reason:
    """Return the reason for a record without an operation, by its fields."""
    if "tableChanges" in names or "ddl" in names:
        return Reason(
            kind=SCHEMA_CHANGE, detail="a change of the schema of tables, no change of a row"
        )
    if {"status", "id", "data_collections"} <= set(names):
        return Reason(
            kind=TRANSACTION, detail="the beginning or end of a transaction, no change of a row"
        )
    if set(names) == {"ts_ms"}:
        return Reason(kind=HEARTBEAT, detail="a heartbeat, no change of a row")
    shown = listed(list(names)[:_NAMES_SHOWN]) if names else "none"
    detail = f"expected an event with the field op, found the fields {shown}"
    return Reason(kind=NO_OP, detail=detail)
