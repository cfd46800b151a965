"""Defects that kbackup once had, put back one at a time by replacing one function.

Each is named as the list of defects names it.  They show that the simulation would have found
them, and would find them again.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

import pyarrow.compute as pc

from tests.simulation.product import (
    ClosedFile,
    Contents,
    CorruptObjectError,
    Entry,
    Evidence,
    FileSet,
    Holding,
    HoldingRead,
    ObjectHead,
    PartitionLedger,
    Position,
    Remaining,
    RestorePosition,
    RestoreSource,
    ResumeState,
    SinkPosition,
    Start,
    Store,
    Stream,
    decide,
    make_plan,
    original,
    replaced,
)

Planted = Callable[[], AbstractContextManager[Any]]


def a1() -> AbstractContextManager[Any]:
    """A restore that is run again takes every object that begins below its position for done."""
    remaining = original("remaining")

    def without_grown(
        facts_of: Any, sets: Sequence[FileSet], position: RestorePosition | None, *more: Any
    ) -> Remaining:
        found = remaining(facts_of, sets, position, *more)
        offset = 0 if position is None else position.cursor.offset
        rest = tuple(files for files in found.sets if files.start_offset >= offset)
        return Remaining(rest, found.before)

    return replaced("remaining", without_grown)


def a2() -> AbstractContextManager[Any]:
    """A position in a target counts for whatever is restored into it."""

    def never(self: RestoreSource, other: RestoreSource) -> bool:
        return False

    return replaced("conflicts", never)


def a3() -> AbstractContextManager[Any]:
    """A target that was emptied counts as restored."""

    def trusting(position: RestorePosition, lane: Any, *_: Any) -> ResumeState:
        return ResumeState(position, (lane,))

    return replaced("in log", trusting)


def a6() -> AbstractContextManager[Any]:
    """An object is compared, and then replaced whatever is there by now."""

    def unconditional(store: Store, file: ClosedFile, replaced: ObjectHead | None) -> bool:
        facts = file.facts
        return store.put(
            file.key, file.body, sha256=facts.sha256, metadata=file.metadata,
            if_absent=replaced is None,
        )  # fmt: skip

    return replaced("put", unconditional)


def a7() -> AbstractContextManager[Any]:
    """What expires while a first backup begins is no gap."""
    make = make_plan

    def forgetful(*given: Any, reached: Any = None, **named: Any) -> Any:
        return make(*given[:4], **named)

    return replaced("make plan", forgetful)


def a8() -> AbstractContextManager[Any]:
    """What was stored more than ten days ago is no longer known."""
    read = original("read ledger")

    def forgetful(self: Stream, *given: Any, **named: Any) -> Contents:
        found: Contents = read(self, *given, **named)
        oldest = self.clock.ms() - 10 * 86_400_000
        return replace(found, rows=found.rows.filter(pc.field("time") > oldest))

    return replaced("read ledger", forgetful)


PLANTED: dict[str, Planted] = {"A1": a1, "A2": a2, "A3": a3, "A6": a6, "A7": a7, "A8": a8}


def ends_unasked() -> AbstractContextManager[Any]:
    """Values that do not say where they end are taken to end among the full records around them."""
    answered = original("answered holding")

    def inside(*given: Any) -> Holding:
        found: Holding = answered(*given)
        if found.compared is None:
            return found
        return replace(found, counted=1, compared=replace(found.compared, reaches=False))

    return replaced("answered holding", inside)


def values_uncut() -> AbstractContextManager[Any]:
    """Values are read whole where full records hold a part of them."""

    def whole(self: Any, one: Holding, accounted: Any) -> Iterator[HoldingRead]:
        yield HoldingRead(one)

    return replaced("stated", whole)


def locks_apart() -> AbstractContextManager[Any]:
    """Two sinks that are asked for the same topics in other words do not see each other."""
    return replaced("other locks", lambda *_: [])


@contextmanager
def position_alone() -> Iterator[None]:
    """A position is believed although objects lie behind it."""
    following = original("following")

    def nothing_more(*given: Any) -> Any:
        return replace(following(*given), has_more=False, is_spread=False)

    with (
        replaced("following", nothing_more),
        replaced("reached", lambda _: None),
    ):
        yield


def ledger_alone() -> AbstractContextManager[Any]:
    """Objects are judged by what the ledger says of them alone."""
    return replaced("asked", lambda *_: None)


@contextmanager
def repairs_any_topic() -> Iterator[None]:
    """A repair does not know which topic the objects are of, and does not ask them."""
    of = original("repaired topic")

    def nameless(self: Any, name: str) -> Any:
        said, found = of(self, name)
        topics = {at: replace(row, topic_id="") for at, row in said.topics.items()}
        return replace(said, topics=topics), found

    with (
        replaced("repaired topic", nameless),
        replaced("repaired identities", lambda *_: ()),
    ):
        yield


def refused_believed() -> AbstractContextManager[Any]:
    """A run that refuses a topic enters what it is now."""
    return replaced("refused topics", lambda _: set())


@contextmanager
def formats_apart() -> Iterator[None]:
    """A start does not see values of another format."""

    def alike(where: Any, seen: Evidence, **named: Any) -> Start:
        same = tuple(cut for cut in seen.held if cut.is_same or not cut.is_values)
        return decide(where, replace(seen, held=same), **named)

    with (
        replaced("decide", alike),
        replaced("past held", lambda _where, _seen, found: found),
    ):
        yield


def format_narrows() -> AbstractContextManager[Any]:
    """A sink's format narrows what a restore reads."""
    return replaced("only format", lambda settings: settings.format_class)


def offset_uncompared() -> AbstractContextManager[Any]:
    """A position's metadata is believed wherever the position was moved to."""
    confirm = original("confirm")

    def trusting(store: Any, layout: Any, where: Any, position: Position, *more: Any) -> Any:
        found = SinkPosition.read(position.metadata)
        at = position.offset if found is None or found.at is None else found.at
        return confirm(store, layout, where, replace(position, offset=at), *more)

    return replaced("confirm", trusting)


def open_unseen() -> AbstractContextManager[Any]:
    """What is behind an open transaction is not looked for."""
    return replaced("held up", lambda *_: None)


def accepts_by_time() -> AbstractContextManager[Any]:
    """An acceptance covers what was entered before it by the clocks of two hosts."""

    def by_time(of: PartitionLedger) -> Callable[[Entry], bool]:
        return lambda entry: any(
            one.key == entry.key and one.time >= entry.time for one in of.accepted
        )

    return replaced("acceptance", by_time)


def later_is_damage() -> AbstractContextManager[Any]:
    """A file of the ledger that a later version wrote is taken for damaged."""

    def damage(what: str, *_: Any, **__: Any) -> CorruptObjectError:
        return CorruptObjectError(what, "it is damaged")

    return replaced("newer version", damage)


MIXED: dict[str, Planted] = {
    "1": ends_unasked, "2": values_uncut, "3": locks_apart, "4": position_alone,
    "5": ledger_alone, "6": repairs_any_topic, "7": refused_believed, "8": formats_apart,
    "9": format_narrows, "10": offset_uncompared, "25": open_unseen, "26": accepts_by_time,
    "28": later_is_damage,
}  # fmt: skip
"""Those that mixtures of layouts, formats, groups and hosts show."""
