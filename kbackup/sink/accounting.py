"""Account for a sink's run: in its summary, in the ledger and on the screen."""

import threading
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from kbackup.catalog import listing
from kbackup.catalog.ledger import stream
from kbackup.catalog.ledger.rows import GAP, OBJECTS, SINK, TOPIC, TOPICS, TopicEntry, ranged, table
from kbackup.catalog.ledger.stream import FOLD_AT, Stream
from kbackup.clock import Clock
from kbackup.config import Settings
from kbackup.errors import Issue, StoppedError, TopicChangedError, TopicDeletedError, counted
from kbackup.events import (
    NO_TOPIC,
    Event,
    NewestObject,
    PartitionCounts,
    PartitionPlanned,
    PartitionRow,
    Planned,
    Progress,
    SinkStart,
    SinkTopic,
    Started,
    Tell,
    TopicPlanned,
    Warned,
)
from kbackup.kafka import Cluster
from kbackup.naming import Layout
from kbackup.naming.renaming import EXCLUDES_NOTHING, UNROUTED, Routes, TopicFilter
from kbackup.pipeline.views import ReadOptions
from kbackup.records import Span, TopicPartition
from kbackup.runs import history
from kbackup.runs.backup_state import listed
from kbackup.runs.history import Estimate, of_sink
from kbackup.runs.report import HeldUp, OfSink, PartitionReport, Row, Summary
from kbackup.sink.plan import SinkPartitionPlan, SinkPlan, next_keys
from kbackup.sink.start import Inherited
from kbackup.stores import Store, side_by_side

_CONFIG: Final = (
    "cleanup.policy",
    "compression.type",
    "max.message.bytes",
    "message.timestamp.type",
    "retention.ms",
)
"""Topic settings that a run record keeps, for a restore to look at."""

_FOR_GOOD: Final = frozenset({TopicChangedError.code, TopicDeletedError.code})
"""Codes of failures that a retry cannot fix."""


def topic_settings(plan: SinkPlan, configs: Mapping[str, Mapping[str, str]]) -> dict[str, Event]:
    """Return what a restore wants to know of the topics as they are now.

    Of those that are refused nothing: they are not the topics that were backed up.
    """
    refused = refused_topics(plan)
    return {
        name: {
            "topic_id": topic.topic_id,
            "partitions": topic.partitions,
            "config": {
                key: configs.get(name, {}).get(key)
                for key in _CONFIG
                if key in configs.get(name, {})
            },
        }
        for name, topic in plan.topics.items()
        if name not in refused
    }


def refused_topics(plan: SinkPlan) -> set[str]:
    """Return the topics of which a run can say nothing: they are others, or no partition goes on.

    A topic of which one partition is refused for what is in the bucket is backed up beside it.
    """
    found = {at.where.topic for at in plan.partitions if at.refusal is not None}
    others = {at.where.topic for at in plan.partitions if isinstance(at.refusal, TopicChangedError)}
    going = {at.where.topic for at in plan.partitions if at.refusal is None}
    return others | (found - going)


def planned_row(at: SinkPartitionPlan) -> PartitionRow:
    """Return what is to be done with a partition, for the display."""
    group, end = at.seen.committed, at.seen.log.end_offset
    start = end if at.start is None else at.start.offset
    return replace(
        row_of(at).shown(), start=start, end=end, committed=start, held_up=at.seen.held_up,
        group_offset=None if group is None else group.offset,
    )  # fmt: skip


def plan_partitions(plan: SinkPlan, settings: Settings) -> Iterator[PartitionPlanned]:
    """Yield the plan's line of each partition."""
    key = next_keys(settings)
    for at in plan.partitions:
        unit, group, left = at.unit(), at.seen.committed, at.seen.inherited
        newest = left.counted[0] if isinstance(left, Inherited) else None
        yield PartitionPlanned(
            at.where,
            at.state,
            committed=None if group is None else group.offset,
            start=None if at.start is None else at.start.offset,
            end=at.seen.log.end_offset,
            next_key=None if unit is None else key(at.where, unit.span),
            newest=None if newest is None else NewestObject(
                newest.key, newest.start_offset, newest.records
            ),
            held_up=at.seen.held_up,
        )  # fmt: skip


def estimated(
    plans: Iterable[SinkPartitionPlan], store: Store, layout: Layout, now: datetime
) -> Mapping[str, Estimate]:
    """Return a run's fact of what it is likely to take; none where there is nothing to do."""
    spans = [unit.span for at in plans if (unit := at.unit()) is not None]
    if not spans:
        return {}
    past = history.runs(store, layout, "sink", now=now)
    return {"estimate": of_sink(sum(map(len, spans)), past, store)}


def plan_topics(
    plan: SinkPlan, layout: Layout, routes: Routes = UNROUTED
) -> Iterator[TopicPlanned]:
    """Yield the plan's line of each topic: what would be read from where, and stored below what."""
    of_topic: dict[str, list[SinkPartitionPlan]] = {name: [] for name in plan.topics}
    for at in plan.partitions:
        of_topic[at.where.topic].append(at)
    for name, topic in sorted(plan.topics.items()):
        mine = of_topic[name]
        refusal = next((at.refusal for at in mine if at.refusal is not None), None)
        stored = sum(at.seen.has_objects or at.seen.is_confirmed for at in mine)
        begun = stored or any(at.seen.committed is not None for at in mine)
        units = [unit for at in mine if (unit := at.unit()) is not None]
        action = "resume" if begun else "create"
        action = "refuse" if refusal is not None else action if units else "done"
        yield TopicPlanned.of(
            name, layout.prefix(routes.topic(name)),
            PartitionCounts(stored, source=topic.partitions), action, refusal,
            SinkTopic(sum(len(unit.span) for unit in units)),
        )  # fmt: skip


def row_of(at: SinkPartitionPlan) -> Row[OfSink]:
    """Return the row of a partition of which nothing has been done yet."""
    start = None if at.start is None else at.start.offset
    report = PartitionReport(
        at.where, start, at.seen.log.end_offset, start, OfSink(),
        held_up=None if at.start is None else at.seen.held_up,
    )  # fmt: skip
    return Row(report, at.state)


def after(row: Row[OfSink], report: PartitionReport[OfSink]) -> Row[OfSink]:
    """Return *row* as a task's report has it, which counts what the whole run has done.

    A task that failed where it began may not have read how far the one before it came.
    """
    before = row.report
    now = replace(before, end=max(before.end or 0, report.end or 0))
    if report.failure is None or report.committed != report.start:
        last = before.done.last if report.done.last is None else report.done.last
        now = replace(
            now, committed=report.committed, done=replace(report.done, last=last), own=report.own
        )
    state = "no records" if now.held_up is None else "held up"
    if now.done.records:
        state = "done"
    if report.failure is not None:
        state = "stopped" if report.failure.code == StoppedError.code else "failed"
    elif now.end != now.committed:
        state = "tail left open"
    return Row(now, state, is_reported=True)


def _ends(span: Span) -> list[int]:
    return [span.start_offset, span.end_offset - 1]


class SinkProgress:
    """What a run has done so far.  Tasks update it while they work; safe from any thread."""

    def __init__(self, summary: Summary) -> None:
        self.lock = summary.lock
        self._summary = summary
        self._rows: dict[TopicPartition, Row[OfSink]] = {}
        self._gap_ends: dict[TopicPartition, int] = {}
        self._until: dict[TopicPartition, float | None] = {}

    def begin(self, at: SinkPartitionPlan, until: float | None = None) -> None:
        """Open the row of a partition.

        Args:
            until: Up to when all that was written to it is backed up, in seconds since the epoch:
                a new partition was empty before.
        """
        with self.lock:
            self._rows[at.where] = row_of(at)
            self._until[at.where] = until

    def plan_again(self, at: SinkPartitionPlan) -> None:
        """Record where a partition that retention overtook continues."""
        with self.lock:
            report = self._rows[at.where].report
            if at.start is not None:
                end = max(report.end or 0, at.seen.log.end_offset)
                report = replace(
                    report, committed=at.start.offset, end=end, held_up=at.seen.held_up
                )
            self._rows[at.where] = replace(self._rows[at.where], report=report, state=at.state)

    def progress(self, said: Progress) -> int | None:
        """Take over what is safe; return where the work on the partition ends.

        A task may know only where its span of it does.
        """
        with self.lock:
            row = self._rows[said.where] = self._rows[said.where].went_on(said)
            return row.end

    def take(self, report: PartitionReport[OfSink]) -> bool:
        """Take over a report, which counts what the whole run has done in its partition.

        Returns:
            Whether it is the first to show how far the partition is.
        """
        with self.lock:
            row = self._rows[report.where]
            before, now = row.report, after(row, report)
            self._rows[report.where] = now
            bad_records = now.report.done.bad_records - before.done.bad_records
            self._summary.skip("bad_records", bad_records)
            for gap in report.own.gaps:
                start = max(gap.start_offset, self._gap_ends.get(report.where, 0))
                end = self._gap_ends[report.where] = max(start, gap.end_offset)
                self._summary.skip("expired_offsets", end - start)
            if report.own.until is not None:
                self._until[report.where] = report.own.until
            return (before.committed, before.end) != (now.report.committed, now.report.end)

    def look(self, where: TopicPartition, held_up: HeldUp | None) -> None:
        """Take over what a task that follows has seen of open transactions."""
        with self.lock:
            row = self._rows[where]
            if held_up is not None:
                held_up = held_up.after(row.report.held_up)
            self._rows[where] = replace(row, report=replace(row.report, held_up=held_up))

    def newly_skipped(self, report: PartitionReport[OfSink]) -> list[list[int]]:
        """Return the first and last offsets of spans of bad records that only *report* knows."""
        with self.lock:
            named = set(self._rows[report.where].report.own.skipped)
            return [_ends(span) for span in report.own.skipped if span not in named]

    def rows(self) -> list[Row[OfSink]]:
        """Return what the summary says of the partitions."""
        with self.lock:
            return list(self._rows.values())

    def set_aside(self, where: TopicPartition, failure: Issue | None) -> bool:
        """Record why a partition is stalled, None if it is not; return whether that is new."""
        with self.lock:
            before = self._summary.standing.get(where, ())
            now = () if failure is None else (failure,)
            self._summary.stand(where, now)
            return [each.code for each in before] != [each.code for each in now]

    def held_up(self) -> dict[TopicPartition, HeldUp]:
        """Return the partitions that open transactions hold up."""
        with self.lock:
            found = {where: row.report.held_up for where, row in self._rows.items()}
        return {where: each for where, each in found.items() if each is not None}

    def gap_ends(self) -> dict[TopicPartition, int]:
        """Return where the log began after the last gap that tasks met."""
        with self.lock:
            return dict(self._gap_ends)

    def untils(self) -> dict[TopicPartition, float | None]:
        """Return up to when each partition is known to be backed up, None where that is not."""
        with self.lock:
            return dict(self._until)

    def until(self) -> float | None:
        """Return up to when everything is known to be backed up, None where that is not known."""
        times = list(self.untils().values())
        known = [time for time in times if time is not None]
        return min(known) if known and len(known) == len(times) else None

    def is_lost(self) -> bool:
        """Whether no partition can ever continue."""
        with self.lock:
            standing = self._summary.standing
            return all(  # which ends at the first that can: it is asked after each report
                row.report.start is None
                or any(failure.code in _FOR_GOOD for failure in standing.get(where, ()))
                for where, row in self._rows.items()
            )


_NAMED: Final = 20
"""The most ranges of skipped offsets in one line; the summary lists more."""


class News:
    """Reports events on the screen; what still holds at the end is in the summary too."""

    def __init__(self, settings: Settings, summary: Summary, tell: Tell) -> None:
        self._settings, self._summary, self._tell = settings, summary, tell

    def start(self, plan: SinkPlan) -> None:
        """Report what the run is going to do, with warnings."""
        settings = self._settings
        own = SinkStart(settings.format_class, settings.view, settings.flush_size)
        started = Started(
            self._summary.run,
            "sink",
            sorted(plan.topics),
            plan.group,
            settings.url,
            settings.topics_dir,
            own,
            plan.left_out.excluded or None,
            plan.left_out.internal or None,
            drills=plan.left_out.drills or None,
            server=settings.endpoint_url,
        )
        self._tell(started)
        for name in settings.topics:
            if name in plan.left_out.drills:
                said = f"{name} is left out: it is of a drill, which will delete it"
                self._tell(self._summary.warn("topic_of_drill", said))
        if (text := settings.asked.idle_exclusion(plan.left_out)) is not None:
            self._tell(self._summary.warn(EXCLUDES_NOTHING, text))
        self.planned(plan)
        if not plan.partitions:  # a run that ends there made no backup
            text = f"no topic matches {', '.join(settings.asked.words)}"
            if settings.follow and not settings.dry_run:
                text += "; waiting for one"
            else:
                self._summary.skip("missing_topics")
                self._summary.facts["reason"] = text
            self._tell(self._summary.warn(NO_TOPIC, text))
        for at in plan.partitions:
            self.odd(at)

    def planned(self, plan: SinkPlan) -> None:
        """Report what is planned for each partition, for the display."""
        self._tell(Planned([planned_row(at) for at in plan.partitions]))

    def odd(self, at: SinkPartitionPlan) -> None:
        """Warn about where a partition continues, or report why it does not."""
        if at.refusal is not None:
            self._summary.fail(at.refusal)
        if at.start is not None:
            for code, text in at.start.warnings:
                self._tell(self._summary.warn(code, text, **at.where.place))

    def expired(self, at: SinkPartitionPlan) -> Sequence[Span]:
        """Report offsets that expired before they were backed up; count and return them."""
        gaps = () if at.start is None else at.start.expired
        for gap in gaps:
            first, last = _ends(gap)
            text = (
                f"{at.where}: offsets {first} to {last} have expired in the cluster before they "
                "were backed up"
            )
            warned = self._summary.warn("gap", text, **at.where.place, offsets=[first, last])
            self._tell(warned)
            self._summary.skip("expired_offsets", len(gap))
        return gaps

    def skipped(self, report: PartitionReport[OfSink], spans: Sequence[Sequence[int]]) -> None:
        """Report which records were left out as bad, and where they are now."""
        if not spans:
            return
        where, topic = report.where, self._settings.errors_deadletterqueue_topic_name
        named = [str(first) if first == last else f"{first}-{last}" for first, last in spans]
        rest = len(named) - _NAMED
        offsets = ", ".join(named[:_NAMED]) + (
            f" and {counted(rest, 'more range')}" if rest > 0 else ""
        )
        kept = "kept nowhere" if topic is None else f"in dead letter topic {topic}"
        text = f"{where}: records left out as bad, {kept}: offsets {offsets}"
        ends = [spans[0][0], spans[-1][1]]
        warned = Warned.about(where, "skipped", text, self._summary.run, offsets=ends)
        self._tell(warned)


class RunLedger:
    """The ledger, as the driver of one run writes it.

    It speaks of topics by the names under which they are stored.
    """

    def __init__(
        self, store: Store, layout: Layout, run: str, clock: Clock, routes: Routes = UNROUTED
    ) -> None:
        self._store, self._layout, self._run, self._clock = store, layout, run, clock
        self._routes = routes
        self._entered: Counter[str] = Counter()
        self._lock = threading.Lock()  # parts are counted while others are folded
        self._topics_changed = False

    def begin(
        self,
        plan: SinkPlan,
        cluster: Cluster,
        asked: TopicFilter,
        reading: ReadOptions,
        settings: Mapping[str, Event],
    ) -> set[TopicPartition]:
        """Enter the topics of a run before anything is stored of them.

        A topic that has no ledger yet gets one of all that is there; so do objects that it lacks
        and that the run continues after: a run may have died between storing and entering them.
        Nothing is written where nothing has changed since the last run.

        Args:
            plan: The run's; topics that it refuses are left as they are.
            asked: What the sink was asked for.
            reading: How objects are read that the ledger lacks.
            settings: The topics' own and the cluster's: `topic_settings`.

        Returns:
            The partitions of which objects of another tool were entered, with where the log ended
            behind them: once full records reach that, these need not be read.

        Raises:
            NewerVersionError: If a later version has written of a topic that has new records.
            StoreError: If it cannot be written.
        """
        known, now = plan.known, self._clock.ms()
        refused = refused_topics(plan)
        names = [name for name in plan.topics if name not in refused]
        if refused and not names:  # what is there is of other topics: this run knows nothing of it
            return set()
        stored_as = {name: self._routes.topic(name) for name in names}
        new = [stored_as[name] for name in names if not known.has_ledger(stored_as[name])]
        left_out = {
            stored: keys
            for name, stored in stored_as.items()
            if stored not in new and (keys := _left_out(plan, name))
        }
        due = dict.fromkeys(new) | left_out
        added_to = {self._routes.topic(unit.where.topic) for unit in plan.units()} - {*new}
        # what compaction has taken since is in such objects alone
        left = {
            self._routes(at.where): (at.where, at.left_at)
            for at in plan.partitions
            if at.left_at is not None
            and (stored := stored_as.get(at.where.topic)) is not None
            and _is_compacted(settings.get(at.where.topic), known.topics.get(stored)) is False
        }
        side_by_side(lambda topic: self._stream(topic).check_version(), added_to)
        bounded = side_by_side(
            lambda name: self._enter(name, due[name], reading, cluster, left), due
        )
        found = set[TopicPartition]().union(*bounded)
        configs = cluster.topic_config(names, overridden_only=True)
        ids = cluster.cluster_id
        rows = [
            TopicEntry(
                TOPIC, stored, ids, plan.topics[name].topic_id, plan.topics[name].partitions,
                _config(configs.get(name), known.topics.get(stored)),
                names=() if stored == name else (name,), run=self._run, time=now,
                compacted=_is_compacted(settings.get(name), known.topics.get(stored)),
            )
            for name, stored in stored_as.items()
        ]  # fmt: skip
        rows.append(
            TopicEntry(
                SINK, cluster_id=ids, group=plan.group, names=tuple(sorted(asked.names)),
                pattern=asked.pattern, excluded=asked.excluded, run=self._run, time=now,
            )
        )  # fmt: skip
        before = [*known.topics.values(), *known.sinks]
        fresh = [row for row in rows if not any(row.says_the_same(one) for one in before)]
        if fresh:
            stream.topics_stream(self._store, self._layout, self._clock).append(
                table(fresh, TOPICS)
            )
            self._topics_changed = True
        return found

    def gap(self, where: TopicPartition, span: Span) -> None:
        """Enter offsets that expired before they were backed up."""
        row = ranged(GAP, where, span, self._run, self._clock.ms())
        self._stream(self._routes.topic(where.topic)).append(table([row], OBJECTS))
        self.note(where.topic)

    def note(self, topic: str) -> None:
        """Count a part that a task has entered for *topic*."""
        with self._lock:
            self._entered[self._routes.topic(topic)] += 1

    def fold(self, *, at_end: bool = False) -> None:
        """Fold what many parts were added to.

        Args:
            at_end: Of the run: look at each topic that got a part; else only at those that got
                many since they were folded.
        """
        with self._lock:
            due = [name for name, count in self._entered.items() if at_end or count >= FOLD_AT]
            for name in due:
                del self._entered[name]
        side_by_side(lambda name: self._stream(name).fold(), due)
        if at_end and self._topics_changed:
            stream.topics_stream(self._store, self._layout, self._clock).fold()

    def _enter(
        self,
        topic: str,
        keys: Collection[str] | None,
        reading: ReadOptions,
        cluster: Cluster,
        left: Mapping[TopicPartition, tuple[TopicPartition, int]],
    ) -> set[TopicPartition]:
        """Enter those objects of a topic, None for all; return partitions of those in *left*."""
        found = listing.list_backup(self._store, self._layout, reading.formats, topics=[topic])
        rows = listed(self._store, found, topic, keys)
        # What begins up to where another tool has left a partition's group is of this topic's log:
        # Kafka forgets the offsets of a deleted topic.
        others = {
            row.key: left[at][0]
            for row in rows
            if (at := TopicPartition(topic, row.partition)) in left
            and row.last is None
            and row.first <= left[at][1]
        }
        ends = cluster.ends(sorted({*others.values()})) if others else {}
        if rows:
            rows = [
                replace(row, below=ends[others[row.key]]) if row.key in others else row
                for row in rows
            ]
            self._stream(topic).append(table(rows, OBJECTS))
        return {*ends}

    def _stream(self, topic: str) -> Stream:
        return stream.topic_stream(self._store, self._layout, topic, self._clock)


def _left_out(plan: SinkPlan, topic: str) -> set[str]:
    """Return the objects of *topic* that a run continues after and that the ledger lacks."""
    found = set[str]()
    for at in plan.partitions:
        if at.where.topic == topic and at.start is not None:
            begin, keys = at.start.offset, at.seen.unentered
            if at.left_at is not None:  # of another tool's it may store the last one's again
                begin, keys = begin + 1, (*keys, *at.seen.unended)
            found.update(key for first, key in keys if first < begin)
    return found


def _config(found: Mapping[str, str] | None, before: TopicEntry | None) -> Mapping[str, str]:
    """Return a topic's own settings; where they may not be read, what is known of them."""
    if found is None:
        return {} if before is None else before.config
    return {name: text for name, text in found.items() if text is not None}


def _is_compacted(found: Event | None, before: TopicEntry | None) -> bool | None:
    """Whether Kafka compacts a topic, or ever did: then a key's last value may be its oldest."""
    was = None if before is None else before.compacted
    if before is not None and "compact" in before.config.get("cleanup.policy", ""):
        was = True  # an earlier version has kept no more of it
    policy = None if found is None else found["config"].get("cleanup.policy")
    return was if was or policy is None else "compact" in policy
