"""Connectors whose rows are like no record, and sinks of full records that take over in place."""

import json
from collections import Counter
from random import Random
from typing import Final

import pytest
from backup_samples import Backup

from kbackup.catalog.ledger.rows import entries
from kbackup.catalog.ledger.stream import topic_stream
from kbackup.clock import SystemClock
from kbackup.errors import KbackupError
from kbackup.kafka import Position
from tests.support.bench import WHERE, Bench
from tests.support.target import Restoring

MASK: Final = 1_000_000
"""What the transform adds to the number of a record."""


class Takeover:
    """A connector that drops some records and changes the others, and a sink after it."""

    def __init__(self, seed: int) -> None:
        self.choose, self.bench = Random(seed), Bench(0)
        self.connected = 0  # the connector's own position
        self.drops = self.choose.choice([0, 0, 3, 2])  # of each so many records one, for a while
        self.directories = self.choose.choice([1, 1, 2])
        self.name = self.choose.choice(["n", "number"])  # a transform may keep the names
        self.is_plain = (
            self.directories == 1
        )  # nobody but the connector has moved the group, nor stored beside it

    def connect(self, *, commits: bool = True) -> None:
        """Store what the topic has, but for the last records, in objects of any size."""
        kafka, choose = self.bench.kafka, self.choose
        kafka.append(WHERE, choose.randint(10, 40))
        at, end = self.connected, kafka.logs[WHERE].end_offset
        while at < end and (at == self.connected or choose.random() < 0.8):
            cut = range(at, min(end, at + choose.randint(1, 12)))
            rows = [one for one in cut if not self.is_dropped(one)]
            for number in range(self.directories):
                share = [one for one in rows if one % self.directories == number]
                self._put(share, "partition=0" if self.directories == 1 else f"d={number}")
            at = cut.stop
            if not commits:
                break
        if commits:
            self.connected = at

    def _put(self, offsets: list[int], directory: str) -> None:
        if offsets:
            text = "".join(f'{{"{self.name}":{one + MASK}}}\n' for one in offsets)
            key = f"topics/orders/{directory}/orders+0+{offsets[0]:010}.json"
            Backup(self.bench.settings).replace(key, text.encode(), {})

    def is_dropped(self, offset: int) -> bool:
        """Whether the connector leaves a record out."""
        return bool(self.drops) and offset // 20 % 2 == 0 and offset % self.drops == 1

    def take_over(self) -> int:
        """Back up full records; return the exit code."""
        self.bench.kafka.append(WHERE, self.choose.choice([0, 5, 30]))
        size = self.choose.choice([3, 8, 100])
        return int(self.bench.sink(size, format_class=None)["exit_code"])

    def play(self) -> str:
        """Play a takeover; return what is wrong with a restore, or nothing."""
        choose, kafka = self.choose, self.bench.kafka
        for _ in range(choose.randint(1, 2)):
            self.connect()
        if choose.random() < 0.2:  # a task that dies before its commit
            self.connect(commits=False)
            self.is_plain = self.is_plain and not self.drops
        kafka.positions_[WHERE] = Position(self.connected)
        if choose.random() < 0.4:
            kafka.positions_[WHERE] = Position(choose.randint(0, kafka.logs[WHERE].end_offset))
            self.is_plain = False
        codes = [self.take_over()]
        if choose.random() < 0.3:  # the connector goes on beside it
            self.connect()
            self.is_plain = False
        codes += [self.take_over() for _ in range(choose.randint(0, 2))]
        if {*codes} - {0, 4}:
            return f"sinks ended with {codes}"
        return self.wrong()

    def wrong(self) -> str:
        """Return what is wrong with a restore of what is there."""
        objects = self.bench.objects().values()
        stored = {number % MASK for numbers in objects for number in numbers}
        backup = Backup(self.bench.settings)
        stream = topic_stream(backup.store, backup.layout, "orders", SystemClock())
        again = Restoring(backup, entries={"orders": [*entries(stream.read().rows)]})
        try:
            again.restore()
        except KbackupError as error:
            self.refused = f"{error}"
            return f"refused, though nothing was moved: {error}" if self.is_plain else ""
        self.refused = ""
        values = [json.loads(one or b"{}") for one in again.cluster.values("copy_of_orders")]
        came = Counter(next(iter(one.values())) % MASK for one in values)
        twice, missing = {at for at, n in came.items() if n > 1}, stored - came.keys()
        return f"twice {twice}, missing {missing}" if twice or missing else ""


@pytest.mark.parametrize("part", range(5))
def test_each_record_comes_once_or_the_restore_is_refused(part: int) -> None:
    """Whatever the group says, and wherever the connector has left records out."""
    found = {seed: Takeover(seed).play() for seed in range(part * 40, part * 40 + 40)}

    assert {} == {seed: wrong for seed, wrong in found.items() if wrong}
