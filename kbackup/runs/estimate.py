"""Estimate what a run takes, by what past ones took."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from math import ceil
from statistics import median
from typing import Final

from kbackup.runs.history import RunRecord
from kbackup.stores import Served, Store

_RUNS: Final = 5
"""How many past runs count..."""

_LOOKED_AT: Final = 50
"""...of how many, the newest: most runs of a cron copy little."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a run is likely to take; None where nothing tells.

    Attributes:
        bytes: Of the objects that it stores, or reads.
        requests: For objects and, of a sink, for the ledger; None where the store counts none.
        seconds: From its start to its end.
    """

    bytes: int | None
    requests: int | None
    seconds: float | None


@dataclass(frozen=True, slots=True)
class PastRates:
    """What past runs took; None where none tells.

    Attributes:
        bytes: Stored for each record.
        objects: Likewise.
        start_s: How long a run takes beside copying, in seconds.
        record_s: How long a record takes.
        byte_s: How long a byte read takes; of restores, a byte of the objects.
    """

    bytes: float | None = None
    objects: float | None = None
    start_s: float | None = None
    record_s: float | None = None
    byte_s: float | None = None


def past_rates(runs: Iterable[RunRecord]) -> PastRates:
    """Return the rates of good runs that copied something.

    Those that followed a topic are left out: they waited for records.  Without Spark, which starts
    only for more than a few records, nothing says how long copying took.

    Args:
        runs: Of one command, the newest first.
    """
    copied = [(run, run.past()) for run in _ended_well(runs) if run.past().records][:_RUNS]
    if not copied:
        return PastRates()
    records = sum(past.records or 0 for _, past in copied)
    stored = sum(past.bytes_stored or 0 for _, past in copied) / records
    objects = sum(past.objects or 0 for _, past in copied) / records
    timed = [(past, work_s) for run, past in copied if (work_s := _work_s(run)) and past.seconds]
    if not timed:
        return PastRates(stored, objects)
    work_s = sum(each_s for _, each_s in timed)
    size = sum(past.bytes_read or 0 for past, _ in timed)
    return PastRates(
        stored,
        objects,
        median(max(0.0, (past.seconds or 0.0) - each_s) for past, each_s in timed),
        work_s / sum(past.records or 0 for past, _ in timed),
        work_s / size if size else None,
    )


def _ended_well(runs: Iterable[RunRecord]) -> Iterator[RunRecord]:
    """Yield those that went well, and came to an end by themselves."""
    looked_at = islice(runs, _LOOKED_AT)
    return (run for run in looked_at if run.is_good and not run.said.get("follow"))


def _work_s(run: RunRecord) -> float | None:
    timings = run.said.get("timings")
    found = timings.get("work_s") if isinstance(timings, dict) else None
    return found if isinstance(found, (int, float)) else None


def of_sink(offsets: int, rates: PastRates, store: Store) -> Estimate:
    """Return what it takes to back up *offsets*.

    Args:
        offsets: Each of them may be a record.
        rates: Of past sinks.
        store: Where they are stored.
    """
    seconds = _seconds(offsets, rates.record_s, rates)
    if rates.bytes is None or rates.objects is None:
        return Estimate(None, None, seconds)
    size, objects = round(offsets * rates.bytes), ceil(offsets * rates.objects)
    requests = None
    if isinstance(store, Served):
        requests = objects * (store.puts(size / (objects or 1)) + 1)  # and entered
    return Estimate(size, requests, seconds)


def of_upkeep(
    size: int, requests: int | None, amount: int, runs: Iterable[RunRecord], counted: str
) -> Estimate:
    """Return what it takes to copy a backup, or to delete of it.

    Args:
        size: Bytes that are copied or deleted.
        requests: For that; None where there is no server.
        amount: How much of what *counted* counts there is.
        runs: Past ones of the same command, the newest first.
        counted: The field of their records that time goes with.
    """
    timed = [
        (run.said[counted], work_s, run.past().seconds or 0.0)
        for run in _ended_well(runs)
        if run.said.get(counted) and (work_s := _work_s(run)) is not None
    ][:_RUNS]
    if not timed:
        return Estimate(size, requests, None)
    each_s = sum(work_s for _, work_s, _ in timed) / sum(done for done, _, _ in timed)
    start_s = median(max(0.0, whole_s - work_s) for _, work_s, whole_s in timed)
    return Estimate(size, requests, round(start_s + amount * each_s, 1))


def of_restore(size: int, objects: int, rates: PastRates, store: Store) -> Estimate:
    """Return what it takes to restore *objects* of together *size* bytes.

    Args:
        size: Their bytes.
        objects: How many.
        rates: Of past restores.
        store: Where they are.
    """
    seconds = _seconds(size, rates.byte_s, rates)
    return Estimate(size, objects if isinstance(store, Served) else None, seconds)


def _seconds(amount: int, each_s: float | None, rates: PastRates) -> float | None:
    if each_s is None or rates.start_s is None:
        return None
    return round(rates.start_s + amount * each_s, 1)
