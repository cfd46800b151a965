"""A unit's records up to the cut: read, converted and routed, without the bad ones."""

import logging
import random
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from kbackup import extractors, partitioners
from kbackup.channel import Line
from kbackup.errors import RegistryError, StoppedError
from kbackup.flow.convert import Conversion, convert
from kbackup.flow.route import route
from kbackup.flow.rows import Rows
from kbackup.kafka import Reader
from kbackup.records import Span, TopicPartition
from kbackup.sink.job import SinkJob
from kbackup.sink.rejects import Rejects
from kbackup.sink.schemas import SchemaKeeper
from kbackup.transforms.chain import Chain

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Intake:
    """Where the rows of one partition come from.

    Attributes:
        job: The run's settings.
        where: The partition.
        reader: Reads it.
        rejects: Takes the records that do not fit.
        line: Says when to stop.
        schemas: Stores the schemas that records name; None where no registry is known.
    """

    job: SinkJob
    where: TopicPartition
    reader: Reader
    rejects: Rejects
    line: Line
    schemas: SchemaKeeper | None = None

    def rows(self, span: Span, views: Sequence[Conversion]) -> Generator[Rows, None, None]:
        """Read, convert and route the records of *span*; bad ones are left out, or end it.

        Raises:
            BadRecordError: After all rows before that record.
            StoppedError: When asked to stop.
        """
        partitioner = partitioners.by_name(self.job.partitioner, self.job.plugin_options)
        extractor = extractors.by_name(self.job.extractor, self.job.plugin_options)
        transforms = (Chain(self.job.transforms), self.where) if self.job.transforms else None
        with closing(self.reader.read(self.where, span)) as batches:  # another may follow
            for batch in batches:
                if self.line.is_stopped():
                    raise StoppedError(f"{self.where} stopped")
                found = self._converted(batch, views, transforms)
                if (
                    self.schemas is not None
                ):  # its converters have asked for them: no question twice
                    self.schemas.meet(self.job.routes(self.where), batch)
                for converted in found:
                    now_ms = self.job.clock.ms()
                    rows = route(
                        converted,
                        self.where,
                        partitioner,
                        extractor,
                        now_ms,
                        affix=self.job.affix,
                        tombstones=self.job.rule.tombstones,
                    )
                    if self.job.errors.tolerates:
                        self.rejects.take(batch, rows)
                        yield rows
                    else:
                        before = rows.before_bad()
                        self.rejects.take(batch, before)
                        yield before
                        self.rejects.take(batch, replace(rows, left_out=(), filtered=()))

    def _converted(
        self,
        batch: pa.RecordBatch,
        views: Sequence[Conversion],
        transforms: tuple[Chain, TopicPartition] | None,
    ) -> list[Rows]:
        """Convert *batch*; a registry's error names the record whose schema was asked for.

        Raises:
            RegistryError: If it does not answer for as long as it is to be asked.
            StoppedError: When asked to stop meanwhile.
        """
        clock, where, attempt = self.job.clock, self.where, 0
        failed_at: float | None = None
        while True:
            try:
                return list(
                    convert(
                        batch,
                        views,
                        nulls=self.job.nulls,
                        compatibility=self.job.rule.compatibility,
                        transforms=transforms,
                    )
                )
            except RegistryError as error:
                attempt += 1
                failed_at = clock.steady_s() if failed_at is None else failed_at
                offset = batch["offset"][error.row].as_py()
                what = f"{where} offset {offset}: {error.what}"
                waited_s, jitter = clock.steady_s() - failed_at, random.random()  # noqa: S311
                wait_s = self.job.errors.wait_s(attempt, waited_s, jitter)
                if wait_s is None:
                    raise RegistryError(
                        what, error.why, error.do,
                        topic=where.topic, partition=where.partition, offset=offset,
                    ) from error  # fmt: skip
                _log.warning("%s: %s; again in %.1f s", what, error.why, wait_s)
                if self.line.wait(wait_s):
                    raise StoppedError(f"{where} stopped") from error
