"""A family of scripts in which the oldest objects go, while sinks and restores are at work.

None of them takes a lock, and each may die at any request.
"""

from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from random import Random
from typing import Any, Final

from tests.simulation.bucket import SimStoreSettings, decode
from tests.simulation.determinism import deterministic
from tests.simulation.events import Committed, Ended, Note, Row
from tests.simulation.play import Play
from tests.simulation.process import Process, Script
from tests.simulation.product import (
    ExpireOptions,
    ExpireRun,
    KbackupError,
    LedgerRepair,
    Plain,
    Stop,
    Summary,
    TopicPartition,
    layout_of,
    read_known,
    reading_of,
    to_json,
)
from tests.simulation.script import TOPICS, Shape, Step
from tests.simulation.truth import partition_of

AGE: Final = timedelta(hours=30)
GRACE: Final = timedelta(hours=24)

STEPS: Final = {
    "produce": 20, "sink": 24, "remove": 24, "undo": 3, "restore": 6, "meanwhile": 5, "reindex": 2,
    "forget group": 2, "rule": 2, "follow": 2,
}  # fmt: skip


def expiring_of(seed: int) -> tuple[Shape, list[Step]]:
    """The script that a number stands for."""
    rng = Random(f"expiring {seed}")
    shape = Shape(
        tuple((name, rng.choice((1, 2))) for name in TOPICS[: rng.choice((1, 1, 2))]),
        rng.choice((1, 2, 3, 5)),
        flush_on_stop=rng.random() < 0.8,
        hours=rng.choice((0, 0, 2)),
        values_only=rng.random() < 0.3,
        is_apart=rng.random() < 0.2,
    )
    kinds = rng.choices([*STEPS], [*STEPS.values()], k=rng.randint(8, 20))
    return shape, [Step(kind, rng.randrange(10**6)) for kind in ["produce", "sink", *kinds]]


class ExpiringPlay(Play):
    """The performance of such a script.

    Attributes:
        broken: What was found wrong.
        deleted: Keys that are gone on purpose.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.broken: list[str] = []
        self.deleted: set[str] = set()
        self._copies = 0

    def _check(self, number: int) -> None:
        """The first family's promises say that nothing is ever deleted."""

    def play(self, steps: Sequence[Step]) -> "ExpiringPlay":
        """Perform *steps*; stop at the first that shows something wrong."""
        with deterministic(Random("ids"), self.clock):
            for number, step in enumerate(steps):
                self.history.append(Note(f"--- {number}: {step} at {self.clock.now():%F %T}"))
                rng = Random(f"step {step.seed}")
                self.clock.sleep(rng.choice((60, 8 * 3600, 13 * 3600, 25 * 3600)))
                before = {*self.bucket.data_keys()}
                getattr(self, "_" + step.kind.replace(" ", "_"))(rng)
                self.bucket.land(rng, 0.3)
                self._judge(before)
                if self.broken:
                    break
        return self

    def _timestamp(self, rng: Random) -> int:
        now = int(self.clock.right.timestamp() * 1000) - rng.randrange(1000)
        return now - rng.randrange(max(1, self.shape.hours)) * 3_600_000

    # what happens

    def _remove(self, rng: Random) -> None:
        """The oldest objects are marked, or deleted."""
        by_size = rng.random() < 0.2
        asked = ExpireOptions(
            None if by_size else AGE, rng.choice((1, 2_000, 8_000)) if by_size else None, GRACE
        )
        self.expire(self._process(rng, self._fate_of_remover(rng)), asked)

    def _undo(self, rng: Random) -> None:
        self.expire(self._process(rng, self._fate_of_remover(rng)), ExpireOptions(is_undo=True))

    def _fate_of_remover(self, rng: Random) -> Script:
        draw = rng.random()
        if draw < 0.5:
            return Script(dies_at=rng.randint(1, 40))
        if draw < 0.7:
            ats = rng.sample(range(1, 40), 2)
            return Script(faults={at: rng.choice(("fail", "lost", "late")) for at in ats})
        return Script()

    def expire(self, process: Process, asked: ExpireOptions) -> dict[str, Any] | None:
        """Run ``sink expire``."""
        settings = self._settings("expire", yes=True)
        summary, told = Summary(process.name, "sink expire"), list[Any]()
        store: Any = SimStoreSettings(self.bucket, process).open()
        run = ExpireRun(
            settings, asked, store, layout_of(settings), self.clock, summary, Stop(), None
        )

        def work() -> Plain:
            try:
                told.extend(to_json(each) for each in run())
            except KbackupError as error:
                summary.fail(error)
            return summary.finish()

        found = self._survive(process, work)
        self._end("expire", process, found, told)
        return found

    def _meanwhile(self, rng: Random) -> None:
        """A restore reads on while what it has planned is marked, and older marks are deleted."""
        if not self.bucket.data_keys():
            return
        process, own = self._process(rng, Script()), Random(rng.random())
        at = rng.randint(4, 40)
        asked = ExpireOptions(AGE, None, GRACE)

        def expire() -> None:
            self.expire(self._process(own, Script()), asked)

        process.script.events = {at: expire}
        found = self._copy(process)
        if found is not None and found.code != 0:
            self._break(f"a restore beside it ended with {found.code}: {found.text[-1200:]}")

    def _reindex(self, rng: Random) -> None:
        process = self._process(rng, Script(dies_at=rng.choice((0, rng.randint(1, 30)))))
        settings = self._settings("verify")
        store: Any = SimStoreSettings(self.bucket, process).open()
        summary = Summary("mend", "sink reindex")
        mending = LedgerRepair(
            store, layout_of(settings), reading_of(settings), summary, self.clock
        )

        def work() -> Plain:
            with suppress(KbackupError):
                list(mending.rebuild())
            return summary.finish()

        self._survive(process, work)

    def _rule(self, rng: Random) -> None:
        """A rule of the bucket deletes what is marked, before anybody else."""
        marked = sorted(self._marked() & {*self.bucket.data_keys()})
        for key in marked[: rng.randint(1, 3)]:
            self.bucket.delete(key, "person")

    # what is true

    def _break(self, what: str) -> None:
        self.broken.append(what)

    def _marked(self) -> set[str]:
        store: Any = SimStoreSettings(self.bucket, self._watcher()).open()
        said = read_known(store, self._layout, self.clock)
        ledgers = (at for one in said.ledgers.values() for at in one.partitions.values())
        return {key for at in ledgers for key in at.marked}

    def _watcher(self) -> Process:
        process = self._process(Random("watcher"), Script())
        process.on_request = lambda: None
        return process

    def _judge(self, before: set[str]) -> None:
        """Nothing looks lost, and what a restore brings is the end of what was backed up."""
        there, marked = {*self.bucket.data_keys()}, self._marked()
        if not there and not before:
            return
        self.deleted |= before - there
        if again := (there - before) & self.deleted:
            self._break(f"stored again: {sorted(again)}")
        process = self._watcher()
        for deep in (False, True):
            found = self.verify(process, deep=deep)
            if found is None or found.code not in (0, 3):
                self._break(
                    f"verify ended with {found and found.code}: {found and found.text[-1200:]}"
                )
        held: dict[TopicPartition, dict[int, Row]] = {}
        for key in there - marked:
            rows = decode(key, self.bucket.objects[key].body) or ()
            held.setdefault(partition_of(key), {}).update((row.offset, row) for row in rows)
        self._check_ends(held, there)
        self._check_copy(held)

    def _check_ends(self, held: dict[TopicPartition, dict[int, Row]], there: set[str]) -> None:
        for where in {partition_of(key) for key in there} - held.keys():
            self._break(f"{where}: nothing is left")
        committed = [event for event in self.history if isinstance(event, Committed)]
        for where, rows in held.items():  # what no run has committed is in no complete file set
            end = max((each.offset for each in committed if each.where == where), default=0)
            due = [row.offset for row in self._log(where).rows if min(rows) <= row.offset < end]
            if missing := sorted({*due} - rows.keys()):
                self._break(f"{where}: a hole at {missing}")

    def _check_copy(self, held: dict[TopicPartition, dict[int, Row]]) -> None:
        self._copies += 1
        found = self._copy(self._watcher())
        if found is None or found.code != 0:
            self._break(
                f"a restore ended with {found and found.code}: {found and found.text[-1200:]}"
            )
            return
        for where, rows in held.items():
            copy = TopicPartition(f"fresh-{self._copies}-{where.topic}", where.partition)
            values = [row.value for row in self.kafka.rows(copy)]
            wanted = [row.value for _, row in sorted(rows.items())]
            if self.shape.hours and self.shape.values_only:  # whose rows do not say their offsets
                values, wanted = sorted(values, key=str), sorted(wanted, key=str)
            if values != wanted:
                self._break(f"{copy} holds {values} in place of {wanted}")

    def _copy(self, process: Process) -> Ended | None:
        """Restore all there is to new topics."""
        return self.restore(process, f"fresh-{self._copies}-$0")
