"""Rows for the tests of the flow: routed in every way that a plugin could."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st
from kbackup_toys import ByValue, Modulo

from kbackup.partitioners import Partitioner, Traits
from kbackup.partitioners.default import DefaultPartitioner
from kbackup.partitioners.extractors import RecordExtractor
from kbackup.pipeline.convert import route
from kbackup.pipeline.rows import Part, Rows
from kbackup.records import Schema, TopicPartition

WHERE: Final = TopicPartition("orders", 3)


@dataclass(frozen=True)
class Arbitrary:
    """Spreads records over directories as a test draws them: record by record, in turn."""

    traits: ClassVar = Traits(())
    directories: tuple[str, ...]

    def encode(self, where: TopicPartition, batch: pa.RecordBatch) -> pa.Array:  # noqa: ARG002
        """Return the directory of each row: that of its offset's place in the turn."""
        turn = len(self.directories)
        return pa.array(
            [self.directories[at % turn] for at in batch["offset"].to_pylist()], pa.string()
        )


_folders = st.builds("{}={}".format, st.sampled_from(["day", "region", "ünï"]),
                     st.text("abz09-_.%üé ", min_size=1, max_size=6))  # fmt: skip
"""One level of a directory's path."""

partitioners: st.SearchStrategy[Partitioner] = st.one_of(
    st.sampled_from([DefaultPartitioner(), Modulo(2), Modulo(5), ByValue()]),
    st.builds(
        lambda names: Arbitrary(tuple(names)),
        st.lists(st.lists(_folders, min_size=1, max_size=3).map("/".join), min_size=1, max_size=7),
    ),
)
"""Ours, a third party's, and any other way to spread records over directories."""


def routed(
    batch: pa.RecordBatch,
    partitioner: Partitioner | None = None,
    schema_of: Callable[[int], Schema | None] = lambda _: None,
) -> list[Rows]:
    """Return *batch*, new rows where the schema of an offset is another."""
    offsets = batch["offset"].to_pylist()
    found, start = [], 0
    for at in range(1, len(batch) + 1):
        if at == len(batch) or schema_of(offsets[at]) != schema_of(offsets[start]):
            some = batch.slice(start, at - start)
            rows = Rows(some, (Part(some, schema_of(offsets[start])),))
            found.append(
                route(rows, WHERE, partitioner or DefaultPartitioner(), RecordExtractor(), 0)
            )
            start = at
    return found


def stamped(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows as Kafka gives them: each with a timestamp, within reason."""
    times = [
        1_700_000_000_000 + (0 if at is None else at % 2**41)
        for at in batch["timestamp"].to_pylist()
    ]
    return batch.set_column(1, batch.schema.field(1), pa.array(times, pa.int64()))


def offsets_by_directory(rows: Sequence[Rows]) -> dict[str, list[int]]:
    """Return the offsets that go to each directory."""
    found: dict[str, list[int]] = {}
    for each in rows:
        assert each.directories is not None
        names = pc.cast(each.directories, pa.string()).to_pylist()
        for name, offset in zip(names, each.batch["offset"].to_pylist(), strict=True):
            found.setdefault(name, []).append(offset)
    return found
