"""How a transform of a key or a value is applied: to structs by column, to JSON row by row."""

from collections.abc import Callable
from typing import Any

import pyarrow.compute as pc

from kbackup.columns import Bad
from kbackup.transforms import schemaless
from kbackup.transforms.data import Data, Records


def on_objects(
    records: Records,
    side: str,
    structs: Callable[[Records, Data], Records],
    objects: Callable[[dict[str, Any]], Any],
    *,
    refuses_null: bool = False,
) -> Records:
    """Apply a transform that works on fields.

    Args:
        records: The records.
        side: "key" or "value".
        structs: Transforms structs; its ``ValueError`` refuses all that are not null.
        objects: Transforms one JSON object without a schema, which it may change in place;
            its ``ValueError`` refuses that object.
        refuses_null: Whether null is refused; otherwise it stays null.
    """
    if refuses_null:
        records = without_null(records, side)
    data = records.side(side)
    if data.schema is None:

        def change(value: Any) -> Any:
            return objects(fields_of(value, side))

        return on_json(records, side, change)
    if not data.is_struct:
        return refused(records, side, no_fields(side, f"of type {data.schema.type}"))
    try:
        return structs(records, data)
    except ValueError as error:
        return refused(records, side, str(error))


def on_json(records: Records, side: str, change: Callable[[Any], Any]) -> Records:
    """Apply *change* to each JSON value without a schema that is not null.

    A ``ValueError`` refuses the record.
    """
    values, bad = schemaless.changed(records.side(side).values, change)
    return records.with_side(side, Data(values, None)).refuse(bad)


def refused(records: Records, side: str, why: str) -> Records:
    """Refuse all records whose key or value is not null."""
    rows = pc.indices_nonzero(records.side(side).values.is_valid()).to_pylist()
    return records.refuse(Bad(row, why) for row in rows)


def without_null(records: Records, side: str) -> Records:
    """Refuse the records whose key or value is null."""
    values = records.side(side).values
    if not values.null_count:
        return records
    rows = pc.indices_nonzero(values.is_null()).to_pylist()
    return records.refuse(Bad(row, f"its {side} is null") for row in rows)


def no_fields(side: str, kind: str) -> str:
    """Return why a transform that works on fields cannot be applied."""
    return f"its {side} has no fields: it is {kind}"


def fields_of(value: Any, side: str) -> dict[str, Any]:
    """Return the fields of a JSON object.

    Raises:
        ValueError: If it is none.
    """
    if not isinstance(value, dict):
        raise ValueError(no_fields(side, schemaless.kind(value)))  # noqa: TRY004
    return value
