"""Sinks of several groups, formats and sizes over one partition, positions that people move."""

import random
from dataclasses import replace
from typing import Any, Final

import pytest

from kbackup.kafka import Position
from tests.support.bench import WHERE, Bench

FORMATS: Final[dict[str, dict[str, object]]] = {
    "json": {"format_class": "json"},
    "gzip": {"format_class": "json", "s3_compression_type": "gzip"},
    "whole": {"format_class": None},
}
CHUNK: Final = 20


class Turns:
    """Runs in turns, as a seed dictates."""

    def __init__(self, seed: int) -> None:
        self.choose, self.bench = random.Random(seed), Bench(0)
        self.groups: dict[str, dict[Any, Position]] = {"a": {}, "b": {}, "c": {}}
        self.past: list[Position] = []
        self.said: list[object] = []
        self.directories = self.choose.choice(["default", "default", "modulo"])

    def play(self) -> str:
        """Play some turns; return what is wrong, and with what, or nothing."""
        for _ in range(self.choose.randint(3, 9)):
            code, is_kept = self._turn()
            stored = {number for rows in self.bench.objects().values() for number in rows}
            at = self.bench.kafka.positions_.get(WHERE)
            end = at.offset if at is not None and code == 0 and is_kept else 0
            missing = set(range(end)) - stored
            if self.bench.doubled() or missing or code not in (0, 4):
                return f"twice {self.bench.doubled()}, missing {missing}: {self.said}"
        return ""

    def _turn(self) -> tuple[int, bool]:
        """Let one group back up; return its exit code, and whether it lived to commit."""
        bench, choose = self.bench, self.choose
        bench.kafka.append(WHERE, choose.choice([0, 3, 8, 15, 23]))
        group = choose.choice("aaabbc")
        bench.kafka.positions_ = self.groups[group]
        moved = self._meddle()
        name, size = choose.choice(["json", "json", "gzip", "whole"]), choose.choice([4, 10, 17])
        before = dict(bench.kafka.positions_)
        there = {one.key for one in bench.store.list("")}
        code = bench.sink(size, **FORMATS[name], partitioner_class=self.directories)["exit_code"]
        dies = choose.choice(["", "", "", "before its commit", "before its ledger row"])
        if dies:
            self.groups[group] = bench.kafka.positions_ = before
        if dies == "before its ledger row":
            new = [one.key for one in bench.store.list("topics/") if one.key not in there]
            new.sort(key=lambda key: int(key.rsplit("+", 1)[1].split(".")[0]))
            # of several directories a start lists one: half a cut elsewhere is for verify to name
            unstored = new[choose.randint(0, len(new)) :] if self.directories == "default" else []
            entered = [one.key for one in bench.store.list("_kbackup/ledger/")]
            for key in (*unstored, *(key for key in entered if key not in there)):
                bench.store.delete(key)
        if (at := bench.kafka.positions_.get(WHERE)) is not None:
            self.past.append(at)
        self.said.append((group, moved, name, size, dies, code, at and at.offset))
        return code, not dies

    def _meddle(self) -> str:
        """Do what people do to a group, or to the ledger."""
        kafka = self.bench.kafka
        offset = self.choose.randint(0, kafka.logs[WHERE].end_offset)
        match self.choose.randint(0, 11):
            case 0 if self.past:
                kafka.positions_[WHERE] = at = self.choose.choice(self.past)
                return f"put back to {at.offset} with its metadata"
            case 1:
                kafka.positions_[WHERE] = Position(offset)
                return f"set to {offset}"
            case 2 if WHERE in kafka.positions_:
                kafka.positions_[WHERE] = replace(kafka.positions_[WHERE], offset=offset)
                return f"set to {offset}, its metadata kept"
            case 3:
                kafka.positions_.clear()
                return "deleted"
            case 4:
                for one in list(self.bench.store.list("_kbackup/")):
                    self.bench.store.delete(one.key)
                return "the ledger deleted"
        return ""


@pytest.mark.parametrize(
    "first",
    [*range(0, 100, CHUNK),
     *(pytest.param(at, marks=pytest.mark.nightly) for at in range(100, 200, CHUNK))],
)  # fmt: skip
def test_wherever_a_sink_starts_no_value_is_stored_twice_and_nothing_left_out(first: int) -> None:
    """Below a position that a run leaves, everything is stored, and no row of values twice."""
    broken = {seed: Turns(seed).play() for seed in range(first, first + CHUNK)}

    assert {} == {seed: how for seed, how in broken.items() if how}
