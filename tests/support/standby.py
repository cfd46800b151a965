"""A cluster in memory that a restore keeps up to date with a bucket in memory, look by look."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backup_samples import Backup

from kbackup.catalog.ledger.rows import OBJECTS, TOPIC, TOPICS, TopicEntry, stored, table
from kbackup.catalog.ledger.stream import topic_stream, topics_stream
from kbackup.config import loading
from kbackup.events import Event, to_json
from kbackup.records import Facts, Span, TopicPartition
from kbackup.restore.run import RestoreRun
from kbackup.runs.context import Environment, Stop
from kbackup.stores import StoreSettings
from tests.support.fakes import SilentLine
from tests.support.hand_clock import HandClock
from tests.support.target import FakeTarget
from tests.support.telling import telling

TERM = 15
NO_PROPERTIES: Mapping[str, str] = {}


class _Tasks:
    """Runs tasks in this process: a `runs.context.RunTasks`."""

    def __init__(self) -> None:
        self.units: list[list[Any]] = []
        self.ended = 0

    def begin(self) -> None:
        """There is nothing to start."""

    def end(self) -> None:
        """Note that nobody needs anything any more."""
        self.ended += 1

    def __call__(
        self, task: Any, units: Sequence[Any], hear: Callable[[Event], None],
        stop: threading.Event, **_: Any,
    ) -> list[Any]:  # fmt: skip
        """Return all reports."""
        self.units.append(list(units))
        line = SilentLine()
        line.tell = lambda event: hear(to_json(event))  # type: ignore[method-assign]
        if stop.is_set():
            line._stopped.set()
        return list(task(units, line))


class Ticks(threading.Event):
    """A stop whose every wait is one more look: lets time pass, and does what is to happen then.

    Args:
        time: Moves by what is waited for.
        happens: Called before each look after the first, with its number from 1; the run is
            stopped when it returns False.
        stop: Asked to stop then.
    """

    def __init__(self, time: HandClock, happens: Callable[[int], bool | None], stop: Stop) -> None:
        super().__init__()
        self._time, self._happens, self._stop, self._count = time, happens, stop, 0
        self.waited: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the next look."""
        assert timeout is not None
        self.waited.append(timeout)
        self._time.pass_s(timeout)
        self._count += 1
        if self._happens(self._count) is False:
            self._stop.ask(TERM)
        return self.is_set()


@dataclass
class Standby:
    """Restores that follow one bucket, one after the other, into one cluster."""

    backup: Backup = field(default_factory=Backup)  # the bucket
    target: FakeTarget = field(default_factory=FakeTarget)  # the cluster
    time: HandClock = field(default_factory=HandClock)  # its clock
    told: list[Event] = field(default_factory=list)  # what the runs told

    def __post_init__(self) -> None:
        self.tasks = _Tasks()
        self.waited: list[float] = []
        self._named: dict[str, int] = {}

    def follow(
        self, happens: Callable[[int], bool | None], *,
        agree: Callable[[str], bool] | None = None, store: StoreSettings | None = None,
        properties: Mapping[str, str] = NO_PROPERTIES, files: Sequence[Path] = (), **options: Any,
    ) -> dict[str, Any]:  # fmt: skip
        """Follow until *happens* returns False before a look; return the summary."""
        given = {
            "bootstrap_servers": "-", "s3_bucket_name": "b", "no_lock": True, "follow": True,
            "rename": "copy_of_$0", **options,
        }  # fmt: skip
        extra = [f"{name}={value}" for name, value in properties.items()]
        settings = loading.load(
            "restore", options=given, files=files, environ={}, extra=extra
        ).settings  # fmt: skip
        stop = Stop()
        ticks = Ticks(self.time, happens, stop)
        stop.event = ticks
        environment = Environment(
            self.target,  # type: ignore[arg-type]
            store or self.backup.settings,
            self.tasks,
            self.time,
        )
        self.run = RestoreRun(settings, telling(self.told), stop, environment, agree)
        try:
            return to_json(self.run())
        finally:
            self.waited = ticks.waited

    def sink(self, topic: str, partition: int, *cuts: range, partitions: int = 1) -> list[str]:
        """Store cuts as a sink does: with their rows in the ledger."""
        if self._named.get(topic) != partitions:
            self._named[topic] = partitions
            self.name(topic, partitions)
        return [key for cut in cuts for key in self._sink(topic, partition, cut)]

    def name(self, topic: str, partitions: int = 1) -> None:
        """Enter a topic into the ledger."""
        entry = TopicEntry(
            TOPIC, topic, "cluster-there", f"id-{topic}", partitions, time=self.time.ms()
        )
        stream = topics_stream(self.backup.store, self.backup.layout, self.time)
        stream.append(table([entry], TOPICS))

    def _sink(self, topic: str, partition: int, cut: range) -> list[str]:
        keys = self.backup.put(topic, partition, cut)
        self.enter(topic, partition, keys, Span(cut[0], cut[-1] + 1))
        return keys

    def enter(self, topic: str, partition: int, keys: Sequence[str], cut: Span) -> None:
        """Enter the objects of a cut into the ledger, which makes them whole."""
        rows = []
        for key in keys:
            head = self.backup.store.head(key)
            assert head is not None
            facts = Facts.from_metadata(head.metadata)
            assert facts is not None
            where = TopicPartition(topic, partition)
            view = self.backup.layout.parse(key).view
            rows.append(stored(where, key, view, facts, head.size, cut, "r", self.time.ms()))
        stream = topic_stream(self.backup.store, self.backup.layout, topic, self.time)
        stream.append(table(rows, OBJECTS))

    def warned(self, code: str) -> list[str]:
        """The sentences of the warnings of one kind that were told."""
        return [event["text"] for event in self.told if event.get("code") == code]


def codes(summary: dict[str, Any]) -> list[str]:
    """What its errors are."""
    return sorted({error["code"] for error in summary["errors"]})
