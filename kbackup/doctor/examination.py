"""All checks in order: the cheapest first, starting Spark last."""

import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Final

from kbackup.config import ConfigIssue, Settings
from kbackup.doctor import Check, configuration, kafka, spark, store
from kbackup.errors import KbackupError
from kbackup.runs import history, wiring
from kbackup.stores import Store

_PAST: Final = 100
"""The most run records that are read to find a topic's last successful run."""

_CLOCKS: Final = timedelta(minutes=5)
"""A run that started later than this from now had a wrong clock."""


def examine(
    settings: Settings,
    doubts: Sequence[ConfigIssue],
    find_java: Callable[[], spark.FoundJava],
    *,
    writes: bool = False,
    starts: bool = True,
    stop: threading.Event | None = None,
) -> Iterator[Check]:
    """Yield one check after the other.

    Args:
        settings: The settings of the run to come; if *doubts* include an error, they are not
            used, and neither cluster nor store is contacted.
        doubts: The errors and warnings of `kbackup.config`.
        find_java: Finds a Java, or raises `JavaNotFoundError`.
        writes: Put probe objects into the store, and delete them.
        starts: Start Spark as a trial.
        stop: Ends the examination after the current check.
    """
    stop = stop or threading.Event()
    parts: list[Iterator[Check]] = [
        _configuration(settings, doubts),
        iter([configuration.disk_space(settings)]),
    ]
    if not any(doubt.level == "error" for doubt in doubts):
        parts.append(_services(settings, writes=writes))
    engine = wiring.engine_settings(settings, None)
    parts.append(spark.checks(find_java, engine, starts=starts, stop=stop))
    for part in parts:
        for check in part:
            if stop.is_set():
                return
            yield check


def _configuration(settings: Settings, doubts: Sequence[ConfigIssue]) -> Iterator[Check]:
    yield from map(configuration.doubt, doubts)
    yield from configuration.losses(settings)
    if not doubts:
        yield Check("configuration", "names and values", "ok", "nothing wrong with them")
    yield configuration.avro_reader()


def _services(settings: Settings, *, writes: bool) -> Iterator[Check]:
    opened = store.open_for(settings)
    backups = None
    if isinstance(opened, Check):
        yield opened
    else:
        readable = True
        for check in store.checks(opened, settings, writes=writes):
            readable &= check.level != "fail" or check.name != "readable"
            yield check
        if readable:
            backups = last_backups(opened, settings, datetime.now(UTC))
    yield from kafka.checks(settings, backups, datetime.now(UTC))
    yield from configuration.registry_checks(settings)


def last_backups(opened: Store, settings: Settings, now: datetime) -> dict[str, datetime] | None:
    """Return the start of each topic's last successful run, None if records cannot be read."""
    found: dict[str, datetime] = {}
    try:
        records = history.runs(opened, wiring.layout(settings), "sink", now=now)
        for record in islice(records, _PAST):
            success = record.success
            if success is not None and success <= now + _CLOCKS:
                for row in record.rows:
                    found.setdefault(row["topic"], success)
    except KbackupError:
        return None
    return found
