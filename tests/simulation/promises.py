"""The checker: what happened goes in, broken promises come out.

It knows nothing of how kbackup works, only what it promises (P1 to P8 of the fault model) and what
the events say was really there.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.simulation.events import (
    NO_TYPE,
    Begun,
    Committed,
    Ended,
    Entered,
    Event,
    GapKept,
    Gone,
    Keyed,
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
    Unfit,
    Vouched,
)
from tests.simulation.product import TopicPartition
from tests.simulation.restored import Broken, Restored
from tests.simulation.truth import Truth, partition_of

CANARY = "c4n4ry-5ecret"
"""Stands for every credential: it is given to each run, and may come out nowhere."""

LETTERS = "letters"
"""The topic of dead letters."""

REQUESTS_MAX = {
    "sink": 290,  # three streams of the ledger and the captures, of 64 files each at most
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

_LATE = "runs since then have not entered it"
"""What is said of an object that a PUT of a dead run has grown, once others were past it."""

_SET_BACK = re.compile(r"the group's offset was set back, .* of offsets (\d+) to (\d+) ")
"""What a sink says that would store the values of a cut under other names than before."""

_CUT_EXPIRED = re.compile(
    r"the log begins at \d+, in the middle of a rotation of values, (\d+) to (\d+),"
)
"""What a sink says of a cut that a killed run stored in part, and whose first records expired."""

CODES = frozenset({0, 1, 3, 4, 5, 6, 7, 9})


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken promise."""

    promise: str  # ``P1`` to ``P8``
    text: str  # what is wrong, and where
    at: int  # the number of the event that shows it

    def __str__(self) -> str:
        return f"{self.promise}: {self.text} (event {self.at})"


class Checker:
    """Takes events one after the other; `check` is the whole of it as a function."""

    def __init__(self) -> None:
        self.truth = Truth()
        self._at = -1
        self._restored = Restored(self.truth)
        self._size: int | None = None
        self._unruled: set[TopicPartition] = set()
        self._moved: set[TopicPartition] = set()
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
                self.truth.entered.add(event.key)
            case Touched():
                self._touched(event)
            case TargetShows() if event.target.topic == LETTERS:
                self.truth.letters |= {row.name for row in event.rows}
            case TargetShows():
                self._take(self._restored.show(event))
            case Ended():
                self._ended(event)
            case Listed():
                self._restored.list(event.run)
            case Ruled():
                self._size = event.size
            case Moved():
                self._unruled.add(event.where)
                self._moved.add(event.where)
            case Vouched():
                self._vouched(event)
            case StandsBy():
                self._take(self._restored.stand_by(event))
            case Unfit():
                unfit = self.truth.source(event.topic_id, event.where).unfit
                unfit.update((row.offset, row) for row in event.rows)
            case Keyed():
                self._restored.is_keyed = True
            case Note():
                pass
        return self._broken

    def _break(self, promise: str, text: str) -> None:
        self._broken.append(Violation(promise, text, self._at))

    def _take(self, broken: Broken) -> None:
        for promise, text in broken:
            self._break(promise, text)

    # what is true

    def _produced(self, event: Produced) -> None:
        source = self.truth.source(event.topic_id, event.where)
        source.rows.update((row.offset, row) for row in event.rows)
        source.times.update((row.offset, event.at_ms) for row in event.rows)

    def _gone(self, event: Gone) -> None:
        source = self.truth.source(event.topic_id, event.where)
        self._unruled.add(event.where)
        for offset in event.offsets:
            source.gone[offset] = event.how
            if event.how == "compacted" and offset >= source.claimed:
                source.excused.add(offset)

    def _begun(self, event: Begun) -> None:
        source = self.truth.source(event.topic_id, event.where)
        if source.begins is None:
            source.begins = event.offset
        self.truth.begun_last[event.where] = event.topic_id

    # the backup

    def _stored(self, event: Stored) -> None:
        if event.rows is None:
            if event.by == "kbackup":
                self._break("P2", f"{event.key} cannot be read")
            return
        before = self.truth.objects.get(event.key)
        where = partition_of(event.key)
        self.truth.objects[event.key] = event.rows
        size, self.truth.sizes[event.key] = self.truth.sizes.get(event.key), event.size
        if event.by == "person":
            self.truth.strange.add(event.key)
            self.truth.is_tampered = True
            if size == event.size or len(event.rows) >= len(before or ()):
                self.truth.alike |= {(where, row.offset) for row in before or ()}
            self.truth.look_again(where)
            self.truth.lose(event.key, before or ())
            return
        if before is None and size == event.size:  # in the place of one that people deleted
            self.truth.alike |= {at for at, key in self.truth.lost_from.items() if key == event.key}
        self.truth.own(where)
        known = self.truth.original(where)
        for row in event.rows:
            if known is not None and not row.is_kept(known.rows.get(row.offset)):
                self._break("P1", f"{event.key} holds {row}, which {where} never held")
                break
        missing = {row.offset for row in before or ()} - {row.offset for row in event.rows}
        if missing and event.key not in self.truth.strange:
            self._break("P2", f"{event.key} was replaced by one without offsets {sorted(missing)}")
        self._check_cut(event.key, where, event.rows)
        if any(row.timestamp_type == NO_TYPE for row in event.rows):
            self.truth.file(event.key, where, event.rows)
        self.truth.strange.discard(event.key)
        self.truth.lost_by_people -= {(where, row.offset) for row in event.rows}
        for row in event.rows:
            self.truth.stored(where).setdefault(row.offset, row)

    def excuses(self, event: Ended) -> bool:
        """Whether what a command finds fault with is what values cannot say, or what came late.

        Rows that do not know their offsets come twice where two objects hold them, which `verify`
        names; and they cannot be compared with those of a log that has been compacted since.
        """
        return bool(event.errors) and all(
            (event.code == 7 and _LATE in (error.get("why") or ""))
            or (event.kind == "sink" and event.code == 4 and self._names_cut_with_holes(error))
            or (
                error.get("key", "").endswith(".bin")
                and (
                    (
                        event.kind == "sink"
                        and event.code == 4
                        and self.truth.has_compacted(error["key"])
                    )
                    or (
                        event.kind.startswith("verify")
                        and partition_of(error["key"]) in self.truth.doubled
                    )
                )
            )
            for error in event.errors
        )

    def _names_cut_with_holes(self, error: Mapping[str, Any]) -> bool:
        """Whether a sink stopped before a cut of values that the log has no longer whole."""
        for pattern, how in ((_SET_BACK, "compacted"), (_CUT_EXPIRED, "expired")):
            found = pattern.search(error.get("what") or "")
            if found is not None:
                where = TopicPartition(error["topic"], error["partition"])
                source = self.truth.original(where)
                offsets = range(int(found[1]), int(found[2]) + 1)
                return source is not None and any(source.gone.get(at) == how for at in offsets)
        return False

    def _check_cut(self, key: str, where: TopicPartition, rows: tuple[Row, ...]) -> None:
        """Rules that depend on the records alone cut at the same places whatever happens."""
        source = self.truth.original(where)
        if self._size is None or source is None or where in self._unruled:
            return
        due = [offset for offset in sorted(source.rows) if offset >= (source.begins or 0)]
        first = due.index(rows[0].offset) if rows and rows[0].offset in due else -1
        wanted = due[first : first + self._size]
        if first % self._size or wanted != [row.offset for row in rows]:
            self._break("P3", f"{key} holds {[row.offset for row in rows]} in place of {wanted}")

    def _removed(self, event: Removed) -> None:
        rows = self.truth.objects.pop(event.key, ())
        self.truth.strange.discard(event.key)
        where = partition_of(event.key)
        self.truth.look_again(where)
        if event.by == "kbackup":
            self._break("P5", f"{event.key} was deleted")
            return
        self.truth.is_tampered = True  # it may be named for ever
        if self.truth.is_forgotten(event.key):
            self.truth.sources[self.truth.ids[where], where].begins = None
        else:
            self.truth.lose(event.key, rows)

    def _committed(self, event: Committed) -> None:
        source = self.truth.source(event.topic_id, event.where)
        source.claimed = max(source.claimed, event.offset)
        source.claims.append((event.at_ms, event.offset))
        owner = self.truth.ids.get(event.where, event.topic_id)
        if source.due():
            self.truth.ids.setdefault(event.where, event.topic_id)
        if owner != event.topic_id:
            self._break(
                "P1", f"{event.where}: {event.topic_id} is mixed into the backup of {owner}"
            )
        missing = self.truth.missing(event.where)
        if missing:
            self._break(
                "P1", f"{event.where} is committed to {event.offset} without offsets {missing[:9]}"
            )

        unsaid = [
            offset
            for offset, row in source.unfit.items()
            if (source.begins or 0) <= offset < event.offset
            and offset not in source.gone
            and row.name not in self.truth.letters
        ]
        if unsaid and event.where not in self._moved:
            text = f"{event.where} is committed to {event.offset} without dead letters"
            self._break("P1", f"{text} {sorted(unsaid)[:9]}")

    def _gap(self, event: GapKept) -> None:
        self.truth.own(event.where)
        source = self.truth.original(event.where)
        offsets = set(range(event.start, event.end))
        self.truth.gaps.setdefault(event.where, set()).update(offsets)
        if source is not None:
            readable = sorted(o for o in offsets & source.rows.keys() if o not in source.gone)
            if readable:
                self._break("P6", f"{event.where}: {readable[:9]} are called expired, and are not")

    def _touched(self, event: Touched) -> None:
        allowed = {
            "object": ("topics/", "_kbackup/"),
            "topic": ("copy-", "merged", LETTERS),
            "group": ("kbackup-", "mine"),
        }[event.kind]
        if not event.name.startswith(allowed):
            self._break("P5", f"{event.kind} {event.name} was written")

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
            self._take(self._restored.end(event))
        elif event.kind.startswith("verify"):
            self._verify_ended(event)

    def _sink_ended(self, event: Ended) -> None:
        if event.code in (0, 3) and event.records is not None and event.records != event.done:
            text = f"a sink says that it stored {event.records} records, and stored {event.done}"
            self._break("P6", text)
        if event.code != 0:
            return
        for where, (topic_id, end) in event.planned.items():
            source = self.truth.source(topic_id, where)
            # What people took away after it was stored and entered was backed up, though it may
            # never have been committed: a sink goes on after it, and `verify` names it.
            taken = {
                at
                for at in self.truth.lost_by_people
                if self.truth.lost_from[at] in self.truth.entered
            }
            if self.truth.ids.get(where, topic_id) != topic_id:
                self._break("P6", f"exit 0 with {topic_id} in place of {self.truth.ids[where]}")
            there = self.truth.stored(where).keys() | self.truth.gaps.get(where, set())
            left = [
                offset
                for offset in source.rows
                if source.claimed <= offset < end
                and offset not in {*source.gone, *there}
                and (where, offset) not in taken
            ]
            if len(left) > event.may_leave:
                self._break("P6", f"exit 0 with {where} {sorted(left)[:9]} not backed up")
            missing = self.truth.missing(where)
            if missing:
                self._break("P1", f"exit 0 without {where} {missing[:9]}")

    def _vouched(self, event: Vouched) -> None:
        """What was readable up to then is in the backup, or is known not to be."""
        for where, topic_id in event.topics.items():
            source = self.truth.source(topic_id, where)
            there = self.truth.stored(where).keys() | self.truth.gaps.get(where, set())
            left = [
                offset
                for offset, at_ms in source.times.items()
                if at_ms < event.until_ms
                and offset not in {*source.gone, *there}
                and (where, offset) not in self.truth.lost_by_people
            ]
            if len(left) > event.may_leave:
                self._break("P6", f"status vouches for {where}, which lacks {sorted(left)[:9]}")

    def _verify_ended(self, event: Ended) -> None:
        is_deep = event.kind.endswith("--deep")
        unseen = set() if is_deep else self.truth.alike  # without reading, more is no less
        wheres = sorted({*self.truth.ids, *(where for where, _ in self.truth.lost_by_people)})
        lost = sorted(
            (str(where), offset)
            for where, offset in self.truth.lost_by_people
            if where in self.truth.ids
            and (where, offset) not in unseen
            and not self._is_known_gap(where, offset)
            and offset in self.truth.sources[self.truth.ids[where], where].due()
        )
        missing = [(where, gap) for where in wheres if (gap := self.truth.missing(where))]
        if event.code == 0 and (missing or lost):
            self._break("P6", f"{event.kind} exits 0 without {(missing or lost)[:9]}")
        if event.code == 0 and is_deep and self.truth.strange:
            self._break(
                "P6", f"{event.kind} exits 0 with {sorted(self.truth.strange)[:3]} in the bucket"
            )
        is_whole = not (missing or self.truth.is_tampered or event.is_disturbed)
        is_fault = event.code not in (0, 3) and not self.excuses(event)
        if is_fault and is_whole and any(self.truth.objects.values()):
            self._break("P6", f"{event.kind} finds fault with a whole backup: {event.text[-400:]}")

    def _is_known_gap(self, where: TopicPartition, offset: int) -> bool:
        """Whether a record expired after people removed the one object, never entered, that had it.

        A run that died before it stored it would have left the same; the sink called it expired.
        """
        is_entered = self.truth.lost_from[where, offset] in self.truth.entered
        return not is_entered and offset in self.truth.gaps.get(where, set())


def check(history: Sequence[Event]) -> list[Violation]:
    """Return every broken promise of a history."""
    checker = Checker()
    return [violation for event in history for violation in checker.take(event)]
