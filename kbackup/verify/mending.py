"""``restore verify --rebuild`` and ``--accept-missing``: the ledger made to fit the bucket."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final, Self

import pyarrow as pa

from kbackup.catalog import listing
from kbackup.catalog.ledger import objects
from kbackup.catalog.ledger.rows import (
    ACCEPTED,
    EARLIER,
    OBJECT,
    OBJECTS,
    TOPIC,
    TOPICS,
    Entry,
    TopicEntry,
    entries,
    table,
    topic_entries,
)
from kbackup.catalog.ledger.stream import Contents, topic_stream, topics_stream
from kbackup.catalog.listing import Catalog
from kbackup.clock import Clock
from kbackup.errors import ConfigurationError, counted, form
from kbackup.events import Warned
from kbackup.naming import Layout
from kbackup.naming.renaming import select
from kbackup.pipeline.views import ReadOptions
from kbackup.records import Span, TopicIdentity, TopicPartition
from kbackup.runs import known
from kbackup.runs.known import BackupState
from kbackup.runs.report import Summary
from kbackup.stores import Store

_RANGE: Final = re.compile(r"([A-Za-z0-9._-]{1,249}):(\d{1,10}):(\d{1,19})-(\d{1,19})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What was removed on purpose.

    Attributes:
        ranges: Offsets of partitions.
        before_ms: Everything that was stored before, in ms since the epoch; None for nothing.
    """

    ranges: Sequence[tuple[TopicPartition, Span]] = ()
    before_ms: int | None = None

    @classmethod
    def parse(cls, ranges: Sequence[str], before: str | None) -> Self:
        """Read ``--accept-missing TOPIC:PARTITION:FIRST-LAST`` and ``--accept-before DATE``.

        Raises:
            ConfigurationError: If one of them is not of that form.
        """
        found = []
        for text in ranges:
            match = _RANGE.fullmatch(text.strip())
            if match is None or int(match[3]) > int(match[4]):
                raise ConfigurationError(
                    f"--accept-missing {text} is not a range of offsets",
                    do="write orders:0:4200-4299 for offsets 4200 to 4299 of orders, partition 0",
                )
            where = TopicPartition(match[1], int(match[2]))
            found.append((where, Span(int(match[3]), int(match[4]) + 1)))
        try:
            time = None if before is None else datetime.fromisoformat(before)
        except ValueError as error:
            raise ConfigurationError(
                f"--accept-before {before} is not a date", do="write it as 2026-11-21"
            ) from error
        if time is None:
            return cls(found)
        aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
        return cls(found, int(aware.timestamp() * 1000))

    def __bool__(self) -> bool:
        return bool(self.ranges) or self.before_ms is not None

    def takes(self, where: TopicPartition, entry: Entry) -> bool:
        """Whether a missing object is accepted as such."""
        if self.before_ms is not None and entry.time < self.before_ms:
            return True
        return any(
            at == where and span.start_offset <= entry.first
            and entry.span.end_offset <= span.end_offset
            for at, span in self.ranges
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mending:
    """What is written into the ledger of a backup before it is verified.

    Attributes:
        store: Where the backup is.
        layout: How objects are named.
        reading: How they are read.
        summary: Takes warnings.
        clock: The time.
        names: Topics; all where there are none.
        pattern: A Java regular expression for topics, where there are no *names*.
    """

    store: Store
    layout: Layout
    reading: ReadOptions
    summary: Summary
    clock: Clock
    names: Collection[str] = ()
    pattern: str | None = None

    def rebuild(self, *, only_new: bool = False) -> Iterator[Warned]:
        """Rebuild the ledger from the objects.

        What can still be read of it is kept, also of objects that are not there: they are missing
        until someone accepts that.

        Args:
            only_new: Leave topics alone that have a ledger.

        Raises:
            StoreError: If the store does not answer.
        """
        said = known.read(self.store, self.layout, self.clock, self.names, self.pattern)
        found = self._listed()
        there = {*found.topics(), *said.topics, *(where.topic for where in said.recorded)}
        topics = [name for name in select(there, self.names, self.pattern) if name in there]
        if only_new:
            topics = [name for name in topics if not said.has_ledger(name)]
        for topic in topics:
            yield self._rebuild(topic, found, said)
        if topics:
            stream = topics_stream(self.store, self.layout, self.clock)
            stream.rewrite(lambda before: self._topics(before, topics, found, said))

    def accept(self, acceptance: Acceptance) -> Iterator[Warned]:
        """Enter what is missing and was removed on purpose.

        Raises:
            StoreError: If the store does not answer.
        """
        yield from self.rebuild(only_new=True)  # what has no ledger has nowhere to enter it
        said = known.read(self.store, self.layout, self.clock, self.names, self.pattern)
        found = self._listed()
        taken: defaultdict[str, list[Entry]] = defaultdict(list)
        for where in sorted(said.partitions()):
            for entry in said.ledger(where).missing(found.keys):
                if acceptance.takes(where, entry):
                    row = objects.accepted(entry, self.summary.run, self.clock.ms())
                    taken[where.topic].append(row)
        for topic, rows in taken.items():
            stream = topic_stream(self.store, self.layout, topic, self.clock)
            stream.append(table(rows, OBJECTS))
            text = f"{topic}: {counted(len(rows), 'missing object')} "
            text += f"{form(len(rows), 'is', 'are')} accepted as removed on purpose"
            yield self.summary.warn("accepted_missing", text, topic=topic)
        if not taken:
            yield self.summary.warn("accepted_missing", "none of the named objects is missing")

    def _listed(self) -> Catalog:
        return listing.list_backup(self.store, self.layout, self.reading.formats, topics=self.names)

    def _rebuild(self, topic: str, found: Catalog, said: BackupState) -> Warned:
        def rows(before: Contents) -> pa.Table:
            if not said.has_ledger(topic):
                return table(
                    known.adopt(self.store, self.layout, topic, found, said),
                    OBJECTS,
                )
            kept = [
                one
                for one in entries(before.rows)
                if one.kind not in (OBJECT, ACCEPTED) or one.key not in found.keys
            ]  # fmt: skip  (what is there again was not accepted as removed)
            return table([*kept, *known.listed(self.store, found, topic)], OBJECTS)

        topic_stream(self.store, self.layout, topic, self.clock).rewrite(rows)
        text = f"{topic}: the ledger was rebuilt from its objects"
        return self.summary.warn("ledger_rebuilt", text, topic=topic)

    def _topics(
        self, before: Contents, topics: Collection[str], found: Catalog, said: BackupState
    ) -> pa.Table:
        kept = [
            one for one in topic_entries(before.rows)
            if one.kind != EARLIER or one.topic not in topics
        ]  # fmt: skip
        entered = {one.topic for one in kept if one.kind == TOPIC}
        fresh = [self._topic(name, found, said) for name in topics if name not in entered]
        if not said.is_begun:
            left = said.earlier - set(topics)
            fresh += [TopicEntry(EARLIER, name, time=self.clock.ms()) for name in sorted(left)]
        return table([*kept, *fresh], TOPICS)

    def _topic(self, name: str, found: Catalog, said: BackupState) -> TopicEntry:
        """Return what is known of a topic that the ledger does not speak of."""
        wheres = found.partitions(name)
        entry = said.topics.get(name)
        if entry is None:
            count = max((where.partition for where in wheres), default=-1) + 1
            entry = TopicEntry(TOPIC, name, partitions=count)
        heads = (self.store.head(found.sets[where][-1].files[0].key) for where in wheres)
        head = next((head for head in heads if head is not None), None)
        own = TopicIdentity.from_metadata({} if head is None else head.metadata)
        if own.topic_id:
            entry = replace(entry, cluster_id=own.cluster_id, topic_id=own.topic_id)
        return replace(entry, kind=TOPIC, run=self.summary.run, time=self.clock.ms())
