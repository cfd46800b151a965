"""Sinks over a cluster and a bucket in memory: one run to its end, or one beside the test."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from kbackup.clock import Clock, SystemClock
from kbackup.config import Settings
from kbackup.events import to_json
from kbackup.naming import Layout
from kbackup.runs import history, status
from kbackup.runs.context import Environment, Stop
from kbackup.sink.maintenance import RepairRun
from kbackup.sink.run import SinkRun
from kbackup.stores import StoreSettings, open_store
from tests.support.configurations import load
from tests.support.fake_kafka import FakeKafka
from tests.support.in_threads import InThreads
from tests.support.in_turn import InTurn
from tests.support.telling import telling


def sink_settings(*paths: Path, **options: Any) -> Settings:
    """What a sink goes by that takes no lock."""
    given = {"bootstrap_servers": "h:1", "s3_bucket_name": "b", "no_lock": True, **options}
    return load("sink", *paths, **given).settings if paths else _settings(**given)


@lru_cache(100)
def _settings(**given: Any) -> Settings:
    """The same options make the same settings, which nobody changes."""
    return load("sink", **given).settings


def run_sink(
    kafka: FakeKafka, store: StoreSettings, *paths: Path, clock: Clock | None = None,
    told: list[dict[str, Any]] | None = None, kind: type[SinkRun] | type[RepairRun] = SinkRun,
    **options: Any,
) -> dict[str, Any]:  # fmt: skip
    """Run a sink of these files and options to its end; its summary."""
    environment = Environment(kafka, store, InTurn(), clock or SystemClock())  # type: ignore[arg-type]
    run = kind(
        sink_settings(*paths, **options),
        (lambda _: None) if told is None else telling(told),
        Stop(),
        environment,
    )
    return to_json(run())


class Sink:
    """A sink that runs beside the test.

    Attributes:
        told: The events so far.
        summary: Its last word, once it has ended.
    """

    def __init__(self, kafka: FakeKafka, store: StoreSettings, **options: Any) -> None:
        self.tasks, self.stop = InThreads(), Stop()
        self.told: list[dict[str, Any]] = []
        self.summary: dict[str, Any] = {}
        self._store = open_store(store)
        environment = Environment(kafka, store, self.tasks, SystemClock())  # type: ignore[arg-type]
        run = SinkRun(sink_settings(**options), telling(self.told), self.stop, environment)
        self._thread = threading.Thread(target=lambda: self.summary.update(to_json(run())))
        self._thread.start()

    def wait(self) -> dict[str, Any]:
        """Its summary."""
        self._thread.join(60)
        assert not self._thread.is_alive()
        return self.summary

    def end(self) -> dict[str, Any]:
        """Stop it as SIGTERM does; its summary."""
        self.stop.ask(15)
        return self.wait()

    def warned(self, code: str) -> bool:
        """Whether it has said so."""
        return any(event.get("code") == code for event in self.told)

    def record(self) -> dict[str, Any]:
        """The newest run record."""
        found = next(history.runs(self._store, Layout(), "sink"), None)
        return {} if found is None else dict(found.said)

    def status(self, max_age_s: float | None = None) -> dict[str, Any]:
        """What ``sink status`` says now."""
        now = datetime.now(UTC)
        return to_json(status.status(self._store, Layout(), max_age_s=max_age_s, now=now))


@contextmanager
def following(kafka: FakeKafka, store: StoreSettings, **options: Any) -> Iterator[Sink]:
    """A sink that follows, ended with the context."""
    sink = Sink(kafka, store, **{"follow": True, "rotate_idle_ms": 50, **options})
    try:
        yield sink
    finally:
        if not sink.summary:
            sink.end()
