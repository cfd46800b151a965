"""What targets of restores show, held against what is in the backup (P4, and P6 of a restore)."""

from collections.abc import Iterator
from functools import lru_cache

from tests.simulation.events import NO_TYPE, Ended, Row, StandsBy, TargetShows
from tests.simulation.product import TopicPartition
from tests.simulation.truth import Truth

Broken = Iterator[tuple[str, str]]
"""Promises that are broken, each with what is wrong, and where."""


class Restored:
    """The targets of the restores of one backup."""

    def __init__(self, truth: Truth) -> None:
        self.truth = truth
        self._targets: dict[TopicPartition, TargetShows] = {}
        self._listed: dict[str, dict[TopicPartition, set[int]]] = {}
        self._home: dict[tuple[str, bytes], int] = {}
        self.is_keyed = False

    def list(self, run: str) -> None:
        """Note what a run has found in the bucket."""
        self._listed.setdefault(run, self.truth.offsets())

    def show(self, event: TargetShows) -> Broken:
        """What a target shows is in order, and belongs there."""
        self._targets[event.target] = event
        if self.is_keyed:
            yield from self._homes(event)
        by_source: dict[TopicPartition, list[int]] = {}
        for row in event.rows:
            where, offset = _origin(row)
            by_source.setdefault(where, []).append(offset)
        for where, offsets in by_source.items():
            of = event.target.topic.removeprefix("copy-").removesuffix("-end")
            partition = where.partition if self.is_keyed else event.target.partition
            if event.target.topic != "merged" and where != TopicPartition(of, partition):
                yield "P4", f"{event.target} shows records of {where}"
            may_repeat = event.repeats or event.target.topic == "merged"  # who appends, appends
            if may_repeat or where in self.truth.doubled:
                continue
            folders = {self.truth.folders.get((where, offset), "") for offset in offsets}
            for folder in folders:  # values alone keep their order within a directory
                its = [at for at in offsets if self.truth.folders.get((where, at), "") == folder]
                if sorted(set(its)) != its:
                    yield "P4", f"{event.target} shows {where} as {offsets}"

    def _homes(self, event: TargetShows) -> Broken:
        """Records of one key stand in one partition, whichever they come from."""
        for row in event.rows:
            if row.key is not None:
                at = event.target.topic, row.key
                if self._home.setdefault(at, event.target.partition) != event.target.partition:
                    yield "P4", f"{event.target} shows {row.key!r}, as another partition has"

    def _shown(self, target: TopicPartition) -> tuple[Row, ...]:
        """What a consumer gets of what was restored from one partition, and of others."""
        if not self.is_keyed:
            return self._targets.get(target, TargetShows(target, ())).rows
        wheres = sorted(where for where in self._targets if where.topic == target.topic)
        return tuple(row for where in wheres for row in self._targets[where].rows)

    def stand_by(self, event: StandsBy) -> Broken:
        """What was committed before then, and is there, is in the targets.

        An object that people replaced is waited for, for ten minutes, before that is not claimed.
        """
        if self.truth.is_tampered:
            return
        for where, target in event.targets.items():
            source = self.truth.original(where)
            claims = () if source is None else source.claims
            end = max((offset for at_ms, offset in claims if at_ms < event.until_ms), default=0)
            shown = self._shown(target)
            seen = {_origin(row)[1] for row in shown if _origin(row)[0] == where}
            lacks = sorted(at for at in self.truth.stored(where) if at < end and at not in seen)
            if lacks:
                yield "P4", f"a standby says that it is complete, and {target} lacks {lacks}"

    def end(self, event: Ended) -> Broken:
        """A restore that exits 0 has written what was there when it began, as it was."""
        if event.code != 0:
            return
        comes_twice = not self.truth.doubled.isdisjoint(event.targets)  # a world counts each once
        if event.records is not None and event.records != event.done and not comes_twice:
            text = f"a restore says that it wrote {event.records} records, and wrote {event.done}"
            yield "P6", text
        listed = self._listed.get(event.run, self.truth.offsets())
        for where, target in event.targets.items():
            mine = [row for row in self._shown(target) if _origin(row)[0] == where]
            repeats = target in self._targets and self._targets[target].repeats
            if len(mine) > len(set(mine)) and where in self.truth.doubled and not repeats:
                yield "P6", f"exit 0, and {target} has records twice"
            seen: dict[int, Row] = {}
            for row in mine:
                seen.setdefault(_origin(row)[1], row)
            wanted = self.truth.stored(where)
            lacks = sorted(listed.get(where, set()) - seen.keys())
            if where in {at for at, _ in self.truth.folders} & {
                at for at, _ in self.truth.lost_by_people
            }:
                continue  # what took a deleted object's place may pass for it: rows say nothing
            if lacks:
                yield "P4", f"exit 0, and {target} lacks {where} {lacks[:9]}"
            for offset in sorted(wanted.keys() & seen.keys()):
                if not _is_restored(seen[offset], wanted[offset]):
                    yield "P4", f"{target}: {where} {offset} came back as {seen[offset]}"
                    break


@lru_cache(100_000)
def _origin(row: Row) -> tuple[TopicPartition, int]:
    """Where a record came from: its name says so."""
    topic, partition, offset = (row.name or b"").decode().split("/")[:3]
    return TopicPartition(topic, int(partition)), int(offset)


def _is_restored(row: Row, kept: Row) -> bool:
    """Whether *row* is all of *kept* that can be brought back; the client writes time 0 as 1."""
    if kept.timestamp_type == NO_TYPE:
        return row.content[1:] == (None, kept.value, ())
    return row.content == (kept.timestamp or 1, *kept.content[1:])
