"""What a sink reports before and while it works."""

from collections.abc import Mapping, Sequence
from typing import Final

from kbackup.config import Settings
from kbackup.events import Planned, SinkStart, Started, Tell, Warned
from kbackup.plurals import counted
from kbackup.records import Span, TopicPartition
from kbackup.reports import HeldUp, OfSink, PartitionReport
from kbackup.runs.locks import Holder, left_to_others
from kbackup.runs.record import NO_TOPIC
from kbackup.runs.summary import HELD_UP, LEFT_BEHIND, Summary
from kbackup.sink import accounting
from kbackup.sink.plan import PlannedPartition, SinkPlan

_NAMED: Final = 20
"""The most ranges of skipped offsets in one line; the summary lists more."""


class News:
    """Reports events on the screen; what still holds at the end is in the summary too."""

    def __init__(self, settings: Settings, summary: Summary, tell: Tell) -> None:
        self._settings, self._summary, self._tell = settings, summary, tell
        self._told: dict[TopicPartition, tuple[float, bool]] = {}

    def start(self, plan: SinkPlan) -> None:
        """Report what the run is going to do, with warnings."""
        settings = self._settings
        own = SinkStart(settings.format_class, settings.view, settings.flush_size)
        started = Started(
            self._summary.run,
            sorted(plan.topics),
            plan.group,
            settings.url,
            settings.topics_dir,
            own,
        )
        self._tell(started)
        self.planned(plan)
        if not plan.partitions:
            self.no_topic()
        for at in plan.partitions:
            self.odd(at)

    def planned(self, plan: SinkPlan) -> None:
        """Report what is planned for each partition, for the display."""
        self._tell(Planned([accounting.PlanRow(at) for at in plan.partitions]))

    def no_topic(self) -> None:
        """Report that there is nothing to back up: a run that ends there made no backup."""
        text = f"no topic matches topics.regex {self._settings.topics_regex}"
        if self._settings.follow and not self._settings.dry_run:
            text += "; waiting for one"
        else:
            self._summary.skip("missing_topics")
            self._summary.facts["reason"] = text
        self._tell(self._summary.warn(NO_TOPIC, text))

    def left(self, topics: Mapping[str, Holder]) -> None:
        """Report the topics that other runs work on, for now or, without *topics*, no longer."""
        reason = "locked_topics"
        self._summary.skipped.pop(reason, None)
        self._summary.skip(reason, len(topics))
        if topics:
            self._tell(self._summary.warn(reason, left_to_others(topics)))

    def odd(self, at: PlannedPartition) -> None:
        """Warn about where a partition continues, or report why it does not."""
        if at.refusal is not None:
            self._summary.fail(at.refusal)
        if at.start is not None:
            place = {"topic": at.where.topic, "partition": at.where.partition}
            for code, text in at.start.warnings:
                self._tell(self._summary.warn(code, text, **place))

    def held_up(self, found: Mapping[TopicPartition, HeldUp]) -> None:
        """Report what open transactions hold up now; what they do for too long is left out.

        What holds a partition up is told once, and once more when that is for too long.
        """
        summary = self._summary
        for key in [key for key in summary.remarks if key[0] == HELD_UP and key[1] not in found]:
            del summary.remarks[key]
        for where, each in found.items():
            place = {"topic": where.topic, "partition": where.partition}
            said = Warned(HELD_UP, each.text(where), summary.run, place)
            summary.remarks[HELD_UP, where] = said
            if self._told.get(where) != (each.since, each.is_long):
                self._told[where] = each.since, each.is_long
                self._tell(said)
        summary.skipped.pop(LEFT_BEHIND, None)
        summary.skip(LEFT_BEHIND, sum(each.behind for each in found.values() if each.is_long))

    def expired(self, at: PlannedPartition) -> Sequence[Span]:
        """Report offsets that expired before they were backed up; count and return them."""
        gaps = () if at.start is None else at.start.expired
        for gap in gaps:
            self._expired(at.where, gap)
        return gaps

    def _expired(self, where: TopicPartition, gap: Span) -> None:
        text = (
            f"{where}: offsets {gap.start_offset} to {gap.end_offset - 1} have expired in the "
            "cluster before they were backed up"
        )
        self._tell(
            self._summary.warn(
                "gap", text, topic=where.topic, partition=where.partition,
                offsets=[gap.start_offset, gap.end_offset - 1],
            )
        )  # fmt: skip
        self._summary.skip("expired_offsets", len(gap))

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

    def standing(self, report: PartitionReport[OfSink]) -> None:
        """Report why a partition is set aside, or that it continues."""
        where, failure = report.where, report.failure
        if failure is None:
            code, text = "goes_on", f"{where}: the backup goes on"
        else:
            code, text = "set_aside", f"{where} is set aside: {failure}"
        self._tell(Warned.about(where, code, text, self._summary.run))
