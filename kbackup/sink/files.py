"""The open files of one partition: filled with batches, closed into objects."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kbackup import partitioners
from kbackup.errors import KbackupError
from kbackup.flow.rotation import NO_TIMESTAMP
from kbackup.flow.views import ViewSpec, project
from kbackup.formats import Writer
from kbackup.naming import ObjectKey
from kbackup.records import UNKNOWN, Facts, TopicIdentity, TopicPartition
from kbackup.sink.job import SinkJob
from kbackup.spool import Spool

_EMPTY: Final = Facts(
    first_offset=-1, last_offset=-1, records=0, min_timestamp=None, max_timestamp=None, sha256=""
)


@dataclass(frozen=True, slots=True)
class ClosedFile:
    """A file that is complete and waits to be stored."""

    key: str
    spec: ViewSpec
    body: Spool
    facts: Facts
    identity: TopicIdentity = UNKNOWN

    @property
    def metadata(self) -> Mapping[str, str]:
        """What is stored with the object about itself."""
        return self.facts.to_metadata() | self.identity.to_metadata()


@dataclass(slots=True)
class _Part:
    """One view of one open file."""

    spec: ViewSpec
    body: Spool
    writer: Writer


class OpenFiles:
    """The open files of one topic-partition, one for each encoded partition."""

    def __init__(
        self, job: SinkJob, where: TopicPartition, identity: TopicIdentity = UNKNOWN
    ) -> None:
        self._job, self._where, self._identity = job, where, identity
        self._partitioner = partitioners.by_name(job.partitioner)
        self._converters = {spec.view: spec.open_converter() for spec in job.views}
        self._files: dict[str, list[_Part]] = {}
        self._facts: dict[str, Facts] = {}

    @property
    def records(self) -> int:
        """Records in all open files."""
        return sum(facts.records for facts in self._facts.values())

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows, each to the file of its encoded partition.

        Raises:
            BadRecordError: If a row cannot be stored in this layout.
        """
        encoded = self._partitioner.encode(self._where, batch)
        for index, name in enumerate(encoded.dictionary.to_pylist()):
            rows = batch
            if len(encoded.dictionary) > 1:
                rows = batch.filter(pc.equal(encoded.indices, index))
            if len(rows):
                self._write_to(name, rows)

    def close(self) -> list[ClosedFile]:
        """Complete all open files, and begin anew.

        Returns:
            For each file its views in the job's order, ready to be stored in that order.
        """
        closed = []
        for name, parts in self._files.items():
            facts = self._facts[name]
            for part in parts:
                metadata = facts.to_metadata()
                del metadata["sha256"]
                metadata |= {"topic": self._where.topic, "partition": str(self._where.partition)}
                metadata |= self._identity.to_metadata()
                part.writer.close(metadata)
                key = ObjectKey(
                    self._where.topic,
                    self._where.partition,
                    facts.first_offset,
                    name,
                    part.spec.extension(),
                    part.spec.view,
                )
                own = replace(facts, sha256=part.body.sha256)
                named = self._job.layout.key(key)
                closed.append(ClosedFile(named, part.spec, part.body, own, self._identity))
        self._files, self._facts = {}, {}
        return closed

    def drop(self) -> None:
        """Throw all open files away: the next run begins them again."""
        for parts in self._files.values():
            for part in parts:
                with suppress(KbackupError):  # such as a full disk, which is why it is dropped
                    part.writer.close({})  # left alone, it would write its end later, to nowhere
                part.body.close()
        self._files, self._facts = {}, {}

    def _write_to(self, name: str, rows: pa.RecordBatch) -> None:
        columns = [
            project(spec.view, rows, self._converters[spec.view]) for spec in self._job.views
        ]
        if name not in self._files:
            self._files[name] = [self._begin(spec) for spec in self._job.views]
            self._facts[name] = _EMPTY
        for part, column in zip(self._files[name], columns, strict=True):
            part.writer.write(column)
        self._facts[name] = _grown(self._facts[name], rows)

    def _begin(self, spec: ViewSpec) -> _Part:
        body = Spool(self._job.spool_bytes)
        return _Part(spec, body, spec.open_format().writer(body, spec.view, spec.options))


def _grown(facts: Facts, rows: pa.RecordBatch) -> Facts:
    """Return *facts* with *rows* counted in."""
    times = rows["timestamp"]
    stamped = times.filter(pc.not_equal(times, NO_TIMESTAMP))
    span = pc.min_max(stamped).as_py()
    lows = [at for at in (facts.min_timestamp, span["min"]) if at is not None]
    highs = [at for at in (facts.max_timestamp, span["max"]) if at is not None]
    first = rows["offset"][0].as_py() if facts.records == 0 else facts.first_offset
    return replace(
        facts,
        first_offset=first,
        last_offset=rows["offset"][-1].as_py(),
        records=facts.records + len(rows),
        min_timestamp=min(lows, default=None),
        max_timestamp=max(highs, default=None),
    )
