"""The checker: what happened goes in, broken promises come out.

It knows nothing of how kbackup works, only what it promises (P1 to P8 of the fault model) and what
the events say was really there.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise

from kbackup.naming import Layout
from kbackup.records import TopicPartition
from tests.simulation.events import (
    NO_TYPE,
    Begun,
    Committed,
    Ended,
    Entered,
    Event,
    GapKept,
    Gone,
    Listed,
    Moved,
    Note,
    Produced,
    Removed,
    Row,
    Ruled,
    StandsBy,
    Stored,
    TargetShows,
    Touched,
    Vouched,
)

CANARY = "c4n4ry-5ecret"
"""Stands for every credential: it is given to each run, and may come out nowhere."""

REQUESTS_MAX = {
    "sink": 220,  # three streams of the ledger, of 64 files each at most, and a listing each
    "follow": 400,
    "status": 400,
    "restore": 1500,
    "standby": 3000,
    "verify": 1500,
    "verify --deep": 3000,
}
"""Requests to the bucket that a run may make, however old the backup is."""

REQUESTS_EACH = 20
"""Further ones for each record that it stores or writes: of so small files."""

LAYOUT = Layout()
_LATE = "runs since then have not entered it"
"""What is said of an object that a PUT of a dead run has grown, once others were past it."""

CODES = frozenset({0, 1, 3, 4, 5, 6, 7, 9})


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken promise.

    Attributes:
        promise: ``P1`` to ``P8``.
        text: What is wrong, and where.
        at: The number of the event that shows it.
    """

    promise: str
    text: str
    at: int

    def __str__(self) -> str:
        return f"{self.promise}: {self.text} (event {self.at})"


@dataclass(slots=True)
class _Source:
    """What is true of one partition of one topic id.

    Attributes:
        rows: Every record that was ever readable.
        gone: Those that no longer are, and how they went.
        times: When each became readable, in ms.
        begins: Where the backup of it begins, None before it has begun.
        claimed: What is before this offset is safe, by kbackup's own commits.
        claims: When that was said, in ms, and of which offset.
        excused: Offsets that need not be stored: they went before they had to be.
    """

    rows: dict[int, Row] = field(default_factory=dict)
    gone: dict[int, str] = field(default_factory=dict)
    times: dict[int, int] = field(default_factory=dict)
    begins: int | None = None
    claimed: int = 0
    claims: list[tuple[int, int]] = field(default_factory=list)
    excused: set[int] = field(default_factory=set)

    def due(self) -> dict[int, Row]:
        """The records that have to be in the backup."""
        if self.begins is None:
            return {}
        return {
            offset: row
            for offset, row in self.rows.items()
            if self.begins <= offset < self.claimed and offset not in self.excused
        }


class Checker:
    """Takes events one after the other; `check` is the whole of it as a function."""

    def __init__(self) -> None:
        self._at = -1
        self._sources: dict[tuple[str, TopicPartition], _Source] = {}
        self._ids: dict[TopicPartition, str] = {}
        self._begun_last: dict[TopicPartition, str] = {}
        self._objects: dict[str, tuple[Row, ...]] = {}
        self._held: dict[TopicPartition, dict[int, Row]] = {}
        self._lost_by_people: set[tuple[TopicPartition, int]] = set()
        self._lost_from: dict[tuple[TopicPartition, int], str] = {}
        self._entered: set[str] = set()
        self._strange: set[str] = set()
        self._is_tampered = False
        self._sizes: dict[str, int] = {}
        self._alike: set[tuple[TopicPartition, int]] = set()
        self._gaps: dict[TopicPartition, set[int]] = {}
        self._targets: dict[TopicPartition, TargetShows] = {}
        self._listed: dict[str, dict[TopicPartition, set[int]]] = {}
        self._folders: dict[tuple[TopicPartition, int], str] = {}
        self._doubled: set[TopicPartition] = set()
        self._size: int | None = None
        self._unruled: set[TopicPartition] = set()
        self._broken: list[Violation] = []

    def take(self, event: Event) -> list[Violation]:
        """Return the promises that *event* breaks."""
        self._at += 1
        self._broken = []
        match event:
            case Produced():
                self._produced(event)
            case Gone():
                self._gone(event)
            case Begun():
                self._begun(event)
            case Stored():
                self._stored(event)
            case Removed():
                self._removed(event)
            case Committed():
                self._committed(event)
            case GapKept():
                self._gap(event)
            case Entered():
                self._entered.add(event.key)
            case Touched():
                self._touched(event)
            case TargetShows():
                self._shown(event)
            case Ended():
                self._ended(event)
            case Listed():
                self._listed.setdefault(event.run, self._offsets())
            case Ruled():
                self._size = event.size
            case Moved():
                self._unruled.add(event.where)
            case Vouched():
                self._vouched(event)
            case StandsBy():
                self._stands_by(event)
            case Note():
                pass
        return self._broken

    def _break(self, promise: str, text: str) -> None:
        self._broken.append(Violation(promise, text, self._at))

    # what is true

    def _source(self, topic_id: str, where: TopicPartition) -> _Source:
        return self._sources.setdefault((topic_id, where), _Source())

    def _produced(self, event: Produced) -> None:
        source = self._source(event.topic_id, event.where)
        source.rows.update((row.offset, row) for row in event.rows)
        source.times.update((row.offset, event.at_ms) for row in event.rows)

    def _gone(self, event: Gone) -> None:
        source = self._source(event.topic_id, event.where)
        self._unruled.add(event.where)
        for offset in event.offsets:
            source.gone[offset] = event.how
            if event.how == "compacted" and offset >= source.claimed:
                source.excused.add(offset)

    def _begun(self, event: Begun) -> None:
        source = self._source(event.topic_id, event.where)
        if source.begins is None:
            source.begins = event.offset
        self._begun_last[event.where] = event.topic_id

    # the backup

    def _stored(self, event: Stored) -> None:
        if event.rows is None:
            if event.by == "kbackup":
                self._break("P2", f"{event.key} cannot be read")
            return
        before = self._objects.get(event.key)
        where = _of(event.key)
        self._objects[event.key] = event.rows
        size, self._sizes[event.key] = self._sizes.get(event.key), event.size
        if event.by == "person":
            self._strange.add(event.key)
            self._is_tampered = True
            if size == event.size or len(event.rows) >= len(before or ()):
                self._alike |= {(where, row.offset) for row in before or ()}
            self._look_again(where)
            self._lose(event.key, before or ())
            return
        if before is None and size == event.size:  # in the place of one that people deleted
            self._alike |= {at for at, key in self._lost_from.items() if key == event.key}
        self._own(where)
        known = self._of_key(where)
        for row in event.rows:
            if known is not None and not row.is_kept(known.rows.get(row.offset)):
                self._break("P1", f"{event.key} holds {row}, which {where} never held")
                break
        missing = {row.offset for row in before or ()} - {row.offset for row in event.rows}
        if missing and event.key not in self._strange:
            self._break("P2", f"{event.key} was replaced by one without offsets {sorted(missing)}")
        self._check_cut(event.key, where, event.rows)
        if any(row.timestamp_type == NO_TYPE for row in event.rows):
            self._file(event.key, where, event.rows)
        self._strange.discard(event.key)
        self._lost_by_people -= {(where, row.offset) for row in event.rows}
        for row in event.rows:
            self.stored(where).setdefault(row.offset, row)

    def _file(self, key: str, where: TopicPartition, rows: tuple[Row, ...]) -> None:
        """Note which directory holds these values, and whether another object of it does too."""
        folder = key.rpartition("/")[0]
        for row in rows:
            self._folders[where, row.offset] = folder
        if self._overlaps(where, folder):
            self._doubled.add(where)

    def _overlaps(self, where: TopicPartition, folder: str) -> bool:
        """Whether objects of values in one directory reach into one another."""
        spans = sorted(
            (rows[0].offset, rows[-1].offset)
            for key, rows in self._objects.items()
            if rows and key.rpartition("/")[0] == folder and _of(key) == where
        )
        return any(later[0] <= earlier[1] for earlier, later in pairwise(spans))

    def excuses(self, event: Ended) -> bool:
        """Whether what a command finds fault with is what values cannot say, or what came late.

        Rows that do not know their offsets come twice where two objects hold them, which `verify`
        names; and they cannot be compared with those of a log that has been compacted since.
        """
        return bool(event.errors) and all(
            (event.code == 7 and _LATE in (error.get("why") or ""))
            or (
                error.get("key", "").endswith(".bin")
                and (
                    (event.kind == "sink" and event.code == 4 and self._has_compacted(error["key"]))
                    or (event.kind.startswith("verify") and _of(error["key"]) in self._doubled)
                )
            )
            for error in event.errors
        )

    def _has_compacted(self, key: str) -> bool:
        where = _of(key)
        source = self._of_key(where)
        return source is not None and any(
            source.gone.get(row.offset) == "compacted" for row in self._objects.get(key, ())
        )

    def _check_cut(self, key: str, where: TopicPartition, rows: tuple[Row, ...]) -> None:
        """Rules that depend on the records alone cut at the same places whatever happens."""
        source = self._of_key(where)
        if self._size is None or source is None or where in self._unruled:
            return
        due = [offset for offset in sorted(source.rows) if offset >= (source.begins or 0)]
        first = due.index(rows[0].offset) if rows and rows[0].offset in due else -1
        wanted = due[first : first + self._size]
        if first % self._size or wanted != [row.offset for row in rows]:
            self._break("P3", f"{key} holds {[row.offset for row in rows]} in place of {wanted}")

    def _own(self, where: TopicPartition) -> None:
        """From its first record or gap on, a backup's partition is of one topic."""
        if where in self._begun_last:
            self._ids.setdefault(where, self._begun_last[where])

    def _removed(self, event: Removed) -> None:
        rows = self._objects.pop(event.key, ())
        self._strange.discard(event.key)
        where = _of(event.key)
        self._look_again(where)
        if event.by == "kbackup":
            self._break("P5", f"{event.key} was deleted")
            return
        self._is_tampered = True  # it may be named for ever
        if self._is_forgotten(event.key):
            self._sources[self._ids[where], where].begins = None
        else:
            self._lose(event.key, rows)

    def _is_forgotten(self, key: str) -> bool:
        """Whether nothing is left of a backup that a run had begun, now that *key* is removed.

        The run was killed after it had stored its first objects, and before it could enter them
        or commit an offset; then people removed them.  All evidence was in what they removed, so
        the next run is a first one: it begins where the log begins by then.
        """
        where = _of(key)
        source = self._of_key(where)
        return (
            source is not None
            and not source.claimed
            and not self._gaps.get(where)
            and not any(_of(known) == where for known in {*self._entered, *self._objects})
        )

    def _lose(self, key: str, rows: Iterable[Row]) -> None:
        """People took these away, unless another object has them too."""
        where = _of(key)
        kept = self.stored(where)
        lost = {
            (where, row.offset)
            for row in rows
            if row.offset not in kept and self._is_true(where, row)
        }
        self._lost_by_people |= lost
        self._lost_from |= dict.fromkeys(lost, key)

    def _is_true(self, where: TopicPartition, row: Row) -> bool:
        known = self._of_key(where)
        return known is not None and row.is_kept(known.rows.get(row.offset))

    def _of_key(self, where: TopicPartition) -> _Source | None:
        """The one topic that a backup's partition is of: the first that was ever stored."""
        topic_id = self._ids.get(where)
        return None if topic_id is None else self._sources[topic_id, where]

    def stored(self, where: TopicPartition) -> dict[int, Row]:
        """What the backup holds of a partition, each record once."""
        return self._held.setdefault(where, {})

    def _offsets(self) -> dict[TopicPartition, set[int]]:
        """What a restore that looks now has to bring back: what is there, and what should be."""
        found = {where: set(rows) for where, rows in self._held.items()}
        for where, topic_id in self._ids.items():
            due = self._sources[topic_id, where].due().keys() - self._gaps.get(where, set())
            found.setdefault(where, set()).update(due)
        return found

    def _look_again(self, where: TopicPartition) -> None:
        """Find out what the backup holds after people were in it."""
        found: dict[int, Row] = {}
        for key, rows in self._objects.items():
            if _of(key) == where:
                for row in rows:
                    if key not in self._strange or self._is_true(where, row):
                        found.setdefault(row.offset, row)
        self._held[where] = found

    def _committed(self, event: Committed) -> None:
        source = self._source(event.topic_id, event.where)
        source.claimed = max(source.claimed, event.offset)
        source.claims.append((event.at_ms, event.offset))
        owner = self._ids.get(event.where, event.topic_id)
        if source.due():
            self._ids.setdefault(event.where, event.topic_id)
        if owner != event.topic_id:
            self._break(
                "P1", f"{event.where}: {event.topic_id} is mixed into the backup of {owner}"
            )
        missing = self._missing(event.where)
        if missing:
            self._break(
                "P1", f"{event.where} is committed to {event.offset} without offsets {missing[:9]}"
            )

    def _missing(self, where: TopicPartition) -> list[int]:
        """Offsets that have to be stored and are not, but for what people took away."""
        source = self._of_key(where)
        if source is None:
            return []
        there, gaps = self.stored(where), self._gaps.get(where, set())
        return sorted(
            offset
            for offset in source.due()
            if not (offset in there or offset in gaps or (where, offset) in self._lost_by_people)
        )

    def _gap(self, event: GapKept) -> None:
        self._own(event.where)
        source = self._of_key(event.where)
        offsets = set(range(event.start, event.end))
        self._gaps.setdefault(event.where, set()).update(offsets)
        if source is not None:
            readable = sorted(o for o in offsets & source.rows.keys() if o not in source.gone)
            if readable:
                self._break("P6", f"{event.where}: {readable[:9]} are called expired, and are not")

    def _touched(self, event: Touched) -> None:
        allowed = {
            "object": ("topics/", "_kbackup/"),
            "topic": ("copy-", "merged"),
            "group": ("kbackup-", "mine"),
        }[event.kind]
        if not event.name.startswith(allowed):
            self._break("P5", f"{event.kind} {event.name} was written")

    # the restore

    def _shown(self, event: TargetShows) -> None:
        self._targets[event.target] = event
        by_source: dict[TopicPartition, list[int]] = {}
        for row in event.rows:
            where, offset = _origin(row)
            by_source.setdefault(where, []).append(offset)
        for where, offsets in by_source.items():
            of = event.target.topic.removeprefix("copy-").removesuffix("-end")
            if event.target.topic != "merged" and where != TopicPartition(
                of, event.target.partition
            ):
                self._break("P4", f"{event.target} shows records of {where}")
            may_repeat = event.repeats or event.target.topic == "merged"  # who appends, appends
            if may_repeat or where in self._doubled:
                continue
            folders = {self._folders.get((where, offset), "") for offset in offsets}
            for folder in folders:  # values alone keep their order within a directory
                its = [at for at in offsets if self._folders.get((where, at), "") == folder]
                if sorted(set(its)) != its:
                    self._break("P4", f"{event.target} shows {where} as {offsets}")

    def _ended(self, event: Ended) -> None:
        if CANARY in event.text:
            self._break("P8", f"{event.kind} told a secret")
        if event.code not in CODES:
            self._break("P6", f"{event.kind} ended with {event.code}: {event.text[-300:]}")
        if event.requests > REQUESTS_MAX.get(event.kind, 0) + REQUESTS_EACH * event.done:
            self._break(
                "P7", f"{event.kind} of {event.done} records made {event.requests} requests"
            )
        if event.kind == "sink":
            self._sink_ended(event)
        elif event.kind == "restore":
            self._restore_ended(event)
        elif event.kind.startswith("verify"):
            self._verify_ended(event)

    def _sink_ended(self, event: Ended) -> None:
        if event.code in (0, 3) and event.records is not None and event.records != event.done:
            text = f"a sink says that it stored {event.records} records, and stored {event.done}"
            self._break("P6", text)
        if event.code != 0:
            return
        for where, (topic_id, end) in event.planned.items():
            source = self._source(topic_id, where)
            # What people took away after it was stored and entered was backed up, though it may
            # never have been committed: a sink goes on after it, and `verify` names it.
            taken = {at for at in self._lost_by_people if self._lost_from[at] in self._entered}
            if self._ids.get(where, topic_id) != topic_id:
                self._break("P6", f"exit 0 with {topic_id} in place of {self._ids[where]}")
            there = self.stored(where).keys() | self._gaps.get(where, set())
            left = [
                offset
                for offset in source.rows
                if source.claimed <= offset < end
                and offset not in {*source.gone, *there}
                and (where, offset) not in taken
            ]
            if len(left) > event.may_leave:
                self._break("P6", f"exit 0 with {where} {sorted(left)[:9]} not backed up")
            missing = self._missing(where)
            if missing:
                self._break("P1", f"exit 0 without {where} {missing[:9]}")

    def _vouched(self, event: Vouched) -> None:
        """What was readable up to then is in the backup, or is known not to be."""
        for where, topic_id in event.topics.items():
            source = self._source(topic_id, where)
            there = self.stored(where).keys() | self._gaps.get(where, set())
            left = [
                offset
                for offset, at_ms in source.times.items()
                if at_ms < event.until_ms
                and offset not in {*source.gone, *there}
                and (where, offset) not in self._lost_by_people
            ]
            if len(left) > event.may_leave:
                self._break("P6", f"status vouches for {where}, which lacks {sorted(left)[:9]}")

    def _stands_by(self, event: StandsBy) -> None:
        """What was committed before then, and is there, is in the targets.

        An object that people replaced is waited for, for ten minutes, before that is not claimed.
        """
        if self._is_tampered:
            return
        for where, target in event.targets.items():
            source = self._of_key(where)
            claims = () if source is None else source.claims
            end = max((offset for at_ms, offset in claims if at_ms < event.until_ms), default=0)
            shown = self._targets.get(target, TargetShows(target, ()))
            seen = {_origin(row)[1] for row in shown.rows if _origin(row)[0] == where}
            lacks = sorted(at for at in self.stored(where) if at < end and at not in seen)
            if lacks:
                self._break("P4", f"a standby says that it is complete, and {target} lacks {lacks}")

    def _restore_ended(self, event: Ended) -> None:
        if event.code != 0:
            return
        comes_twice = not self._doubled.isdisjoint(event.targets)  # a world counts each once
        if event.records is not None and event.records != event.done and not comes_twice:
            text = f"a restore says that it wrote {event.records} records, and wrote {event.done}"
            self._break("P6", text)
        listed = self._listed.get(event.run, self._offsets())
        for where, target in event.targets.items():
            shown = self._targets.get(target, TargetShows(target, ()))
            mine = [row for row in shown.rows if _origin(row)[0] == where]
            if len(mine) > len(set(mine)) and where in self._doubled and not shown.repeats:
                self._break("P6", f"exit 0, and {target} has records twice")
            seen: dict[int, Row] = {}
            for row in mine:
                seen.setdefault(_origin(row)[1], row)
            wanted = self.stored(where)
            lacks = sorted(listed.get(where, set()) - seen.keys())
            if where in {at for at, _ in self._folders} & {at for at, _ in self._lost_by_people}:
                continue  # what took a deleted object's place may pass for it: rows say nothing
            if lacks:
                self._break("P4", f"exit 0, and {target} lacks {where} {lacks[:9]}")
            for offset in sorted(wanted.keys() & seen.keys()):
                if not _is_restored(seen[offset], wanted[offset]):
                    self._break("P4", f"{target}: {where} {offset} came back as {seen[offset]}")
                    break

    def _verify_ended(self, event: Ended) -> None:
        is_deep = event.kind.endswith("--deep")
        unseen = set() if is_deep else self._alike  # without reading, more is no less
        wheres = sorted({*self._ids, *(where for where, _ in self._lost_by_people)})
        lost = sorted(
            (str(where), offset)
            for where, offset in self._lost_by_people
            if where in self._ids
            and (where, offset) not in unseen
            and offset in self._sources[self._ids[where], where].due()
        )
        missing = [(where, gap) for where in wheres if (gap := self._missing(where))]
        if event.code == 0 and (missing or lost):
            self._break("P6", f"{event.kind} exits 0 without {(missing or lost)[:9]}")
        if event.code == 0 and is_deep and self._strange:
            self._break(
                "P6", f"{event.kind} exits 0 with {sorted(self._strange)[:3]} in the bucket"
            )
        is_whole = not (missing or self._is_tampered or event.is_disturbed)
        is_fault = event.code not in (0, 3) and not self.excuses(event)
        if is_fault and is_whole and any(self._objects.values()):
            self._break("P6", f"{event.kind} finds fault with a whole backup: {event.text[-400:]}")


@lru_cache(100_000)
def _of(key: str) -> TopicPartition:
    parts = LAYOUT.parse(key)
    return TopicPartition(parts.topic, parts.partition)


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


def check(history: Sequence[Event]) -> list[Violation]:
    """Return every broken promise of a history."""
    checker = Checker()
    return [violation for event in history for violation in checker.take(event)]
