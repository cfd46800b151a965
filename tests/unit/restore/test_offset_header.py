"""The offset of the backup as a header of the copy."""

from typing import Any

import pyarrow as pa
import pytest
from backup_samples import batch
from hypothesis import given
from hypothesis import strategies as st

from kbackup.records import SCHEMA, TopicPartition
from kbackup.restore.transform import with_offset
from tests.support.target import MARKER, Restoring

AT = [3, 7, 9]
HEADERS = st.lists(
    st.fixed_dictionaries({"key": st.text(max_size=3), "value": st.none() | st.binary(max_size=3)}),
    max_size=3,
)


@given(st.lists(HEADERS, min_size=1, max_size=8), st.integers(0, 7), st.integers(0, 8))
def test_each_record_gets_one_header_more(
    headers: list[list[dict[str, Any]]], start: int, length: int
) -> None:
    """The last one; what was there keeps its order, and null, empty and absent stay apart."""
    batches = [batch([at * 3], headers=each) for at, each in enumerate(headers)]
    table = pa.Table.from_batches(batches, SCHEMA).combine_chunks()
    [rows] = table.to_batches()
    part = rows.slice(start, length)

    found = with_offset(part, "offset")

    found.validate(full=True)
    assert found.schema == SCHEMA
    assert found.drop_columns("headers") == part.drop_columns("headers")
    assert [
        [*there, {"key": "offset", "value": str(offset).encode()}]
        for there, offset in zip(
            part["headers"].to_pylist(), part["offset"].to_pylist(), strict=True
        )
    ] == found["headers"].to_pylist()


@pytest.mark.parametrize("name", [None, "was"])
def test_a_restore_gives_it_where_it_is_asked_to(name: str | None) -> None:
    """A copy counts its own offsets: with holes in the log they are not those of the original."""
    restoring = Restoring()
    restoring.backup.put("orders", 0, batch(AT, headers=[]))

    options: dict[str, Any] = {} if name is None else {"offset_header": name}
    restoring.restore(**options)

    rows = restoring.cluster.logs[TopicPartition("copy_of_orders", 0)].rows
    expected = [[]] * 3 if name is None else [[{"key": "was", "value": b"%d" % at}] for at in AT]
    assert expected == [row["headers"] for row in rows if row is not MARKER]
