"""Defects that kbackup once had, put back one at a time by replacing one function.

Each is named as the list of defects names it.  They show that the simulation would have found
them, and would find them again.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pyarrow.compute as pc

from kbackup.catalog.ledger import stream
from kbackup.catalog.listing import FileSet
from kbackup.pipeline.write import ClosedFile
from kbackup.records import Span
from kbackup.restore.planning import resuming
from kbackup.restore.planning import resuming as left
from kbackup.restore.planning.resuming import Log, Remaining, ResumeState
from kbackup.runs.position import BackupSource, CommitMetadata, Mark
from kbackup.sink import keep, run
from kbackup.sink.plan import make_plan
from kbackup.stores import ObjectHead, Store

Planted = Callable[[], AbstractContextManager[Any]]


def a1() -> AbstractContextManager[Any]:
    """A restore that is run again takes every object that begins below its position for done."""
    remaining = left.remaining

    def without_grown(
        facts_of: Any,
        sets: Sequence[FileSet],
        mark: Mark | None,
        cut_of: Any = None,
        own: Any = None,
    ) -> Remaining:
        found = remaining(facts_of, sets, mark, cut_of, own)
        offset = 0 if mark is None else mark.place.offset
        rest = tuple(files for files in found.sets if files.start_offset >= offset)
        return Remaining(rest, found.before)

    return patch("kbackup.restore.planning.plan.remaining", without_grown)


def a2() -> AbstractContextManager[Any]:
    """A position in a target counts for whatever is restored into it."""

    def never(self: BackupSource, other: BackupSource) -> bool:
        return False

    return patch.object(BackupSource, "conflicts", never)


def a3() -> AbstractContextManager[Any]:
    """A target that was emptied counts as restored."""

    def trusting(bookmark: CommitMetadata[Mark], stood: Span, log: Log) -> ResumeState:
        return ResumeState(bookmark)

    return patch.object(resuming, "_in_log", trusting)


def a6() -> AbstractContextManager[Any]:
    """An object is compared, and then replaced whatever is there by now."""

    def unconditional(store: Store, file: ClosedFile, replaced: ObjectHead | None) -> bool:
        facts = file.facts
        return store.put(
            file.key, file.body, sha256=facts.sha256, metadata=file.metadata,
            if_absent=replaced is None,
        )  # fmt: skip

    return patch.object(keep, "_put", unconditional)


def a7() -> AbstractContextManager[Any]:
    """What expires while a first backup begins is no gap."""
    make = make_plan

    def forgetful(*given: Any, reached: Any = None, **named: Any) -> Any:
        return make(*given[:4], **named)

    return patch.object(run, "make_plan", forgetful)


def a8() -> AbstractContextManager[Any]:
    """What was stored more than ten days ago is no longer known."""
    read = stream.Stream.read

    def forgetful(self: stream.Stream, *given: Any, **named: Any) -> stream.Contents:
        found = read(self, *given, **named)
        oldest = self.clock.ms() - 10 * 86_400_000
        return replace(found, rows=found.rows.filter(pc.field("time") > oldest))

    return patch.object(stream.Stream, "read", forgetful)


PLANTED: dict[str, Planted] = {"A1": a1, "A2": a2, "A3": a3, "A6": a6, "A7": a7, "A8": a8}
