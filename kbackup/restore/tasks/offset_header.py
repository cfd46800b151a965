"""The offset a record had, kept as a header of its copy."""

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.records import HEADER, SCHEMA


def with_offset(batch: pa.RecordBatch, name: str) -> pa.RecordBatch:
    """Return records of ``records.SCHEMA`` with one more header each, the last one.

    Args:
        batch: Records with the offsets that they were backed up with.
        name: The header's; its value is the offset as decimal digits.
    """
    headers, count = batch["headers"], len(batch)
    there = headers.flatten()  # of these rows only, where the batch is a slice
    digits = batch["offset"].cast(pa.string()).cast(pa.binary())
    new = pa.StructArray.from_arrays([pa.repeat(name, count), digits], fields=list(HEADER)).cast(
        HEADER
    )
    rows = pa.concat_arrays([pc.list_parent_indices(headers), pa.array(range(count), pa.int64())])
    order = pc.sort_indices(rows)  # which is stable: the new one comes after those of its row
    values = pa.concat_arrays([there, new]).take(order)
    lengths = pc.add(pc.list_value_length(headers), pa.scalar(1, pa.int32()))
    bounds = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])
    field = SCHEMA.field("headers")
    column = pa.ListArray.from_arrays(bounds, values, type=field.type)
    return batch.set_column(batch.schema.get_field_index("headers"), field, column)
