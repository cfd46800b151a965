"""Write, read and list the records of runs, and the times of success, beside ``topics.dir``.

::

    _kbackup/runs/2026-11-21T020000Z-7f3a-sink.json      the summary line of one run
    _kbackup/success/5a3c11d2f09b7e46.json               up to when a sink has stored everything

Several ``topics.dir`` may share the folder: a run record says which it is of.  Run records sort by
their names, which begin with the time of the start by the clock of the host that ran; there is no
colon in them, for file systems that take none.
"""

import hashlib
import json
import logging
import re
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from math import ceil
from statistics import median
from types import MappingProxyType, NoneType
from typing import Any, Final, Self

import orjson

from kbackup import clock
from kbackup.errors import CorruptObjectError, ObjectNotFoundError
from kbackup.events import (
    GOOD,
    IF_KNOWN,
    NO_TOPIC,
    Ended,
    Event,
    PartitionRow,
    known_fields,
    plain_kinds,
    to_json,
)
from kbackup.naming import Layout
from kbackup.naming.renaming import TopicFilter
from kbackup.records import Span, TopicPartition
from kbackup.runs.report import HeldUp
from kbackup.stores import Served, Store, StoredObject, put_json

_RUN_ID: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)-[0-9a-f]{4}", re.ASCII)

CLOCKS: Final = timedelta(minutes=5)
"""How far in the future a run may have started: clocks differ a little.

What is said of ages, and how they are judged, rests on it; what is stored or restored never does.
"""

Selection = tuple[tuple[str, ...], frozenset[int] | None]
"""What a run was asked for: the names or the pattern, and which partitions, None for all."""


@dataclass(frozen=True, slots=True)
class PastRun:
    """How a run ended, as far as its record says.

    Attributes:
        records: What it copied; likewise *objects*, *bytes_read* and *bytes_stored*.
        errors: What failed, as plain JSON values.
    """

    run: str
    started: datetime | None
    result: str | None
    exit_code: int | None
    seconds: float | None
    records: int | None
    objects: int | None
    bytes_read: int | None
    bytes_stored: int | None
    errors: Sequence[Mapping[str, Any]] | None


@dataclass(frozen=True, slots=True)
class RunRecord:
    """The summary of one run, as the version that ran printed it, with its ``topics_dir``."""

    said: Mapping[str, Any]

    @property
    def run(self) -> str:
        """The run's id."""
        return str(self.said.get("run"))

    @property
    def command(self) -> str | None:
        """What was run."""
        return self.said.get("command")

    @property
    def topics_dir(self) -> str | None:
        """Which of the backups in its bucket it is of."""
        return self.said.get("topics_dir")

    @property
    def group(self) -> str | None:
        """The consumer group that kept its positions."""
        return self.said.get("group")

    @property
    def target(self) -> str | None:
        """The brokers that a restore has written to; None where an earlier version ran."""
        return self.said.get("target")

    def wrote_to(self, brokers: str) -> bool:
        """Whether a restore wrote to the cluster of *brokers*: one in common is enough."""
        if self.target is None:
            return True
        ours, theirs = (
            {each.strip() for each in text.split(",")} for text in (brokers, self.target)
        )
        return not ours.isdisjoint(theirs)

    def keeps_positions_in(self, group: str) -> bool:
        """Whether *group* is its group, or with a partition map that of one of its partitions."""
        if self.group == group:
            return True
        base, _, partition = group.rpartition(".")
        is_mapped = self.said.get("partition_map") not in (None, "same")
        return is_mapped and base == self.group and partition.isascii() and partition.isdigit()

    @property
    def names(self) -> list[str]:
        """The topics that it was asked for."""
        return self.said.get("names") or []

    @property
    def only(self) -> frozenset[int] | None:
        """The partitions of each topic that it was asked for, None for all."""
        given = self.said.get("only_partitions")
        return None if given is None else frozenset(given)

    @property
    def selection(self) -> Selection:
        """What it was asked for."""
        return tuple(self.names), self.only

    def vouches_for(self, partitions: Collection[int] | None) -> bool:
        """Whether it was asked for all of these partitions of each topic; None for all there are.

        A run with ``--partitions`` says nothing of the others.
        """
        return self.only is None or (partitions is not None and self.only.issuperset(partitions))

    @property
    def rows(self) -> list[PartitionRow]:
        """The rows of its partitions."""
        return [_row(each) for each in self.said.get("partitions") or ()]

    @property
    def is_good(self) -> bool:
        """Whether the run ended well."""
        return self.said.get("exit_code") in GOOD

    @property
    def matched_nothing(self) -> bool:
        """Whether the run found no topic to back up."""
        warnings = self.said.get("warnings")
        return not self.said.get("partitions") and any(
            isinstance(warning, dict) and warning.get("code") == NO_TOPIC
            for warning in (warnings if isinstance(warnings, list) else ())
        )

    @property
    def covered(self) -> set[str]:
        """What the run was asked for, and the topics it met."""
        return {row.where.topic for row in self.rows} | set(self.names)

    @property
    def started(self) -> datetime | None:
        """When the run started, None where its id does not say so."""
        match = _RUN_ID.fullmatch(self.run)
        try:
            return None if match is None else datetime.fromisoformat(match.group(1))
        except ValueError:  # the 31st of February
            return None

    @property
    def success(self) -> datetime | None:
        """Up to when everything is known to be backed up, judging by this record.

        It says so as ``last_success``: the start of a good run, since what was written to Kafka
        later may not be in it; of a run that follows, the time up to which it has stored all; of a
        run that was not good, what an earlier one said.  A run that matched no topic is not good.
        """
        if "last_success" not in self.said:
            return self.started if self.is_good else None
        return _moment(self.said["last_success"])

    @property
    def held_up(self) -> dict[TopicPartition, HeldUp]:
        """The partitions that open transactions held up, by the names they are stored under."""
        found = {}
        given = self.said.get("held_up")
        for row in given if isinstance(given, list) else ():
            with suppress(KeyError, TypeError, ValueError):
                found[TopicPartition(row["topic"], row["partition"])] = HeldUp.from_dict(row)
        return found

    @property
    def trouble(self) -> str:
        """Why the run is not good, in a few words; empty where it does not say."""
        if self.matched_nothing:
            return f"the newest run found no topic that matches {', '.join(self.names)}"
        errors = self.said.get("errors")
        found = [error.get("what") for error in errors or () if isinstance(error, dict)]
        more = f", and {len(found) - 1} more" if len(found) > 1 else ""
        return f"{found[0]}{more}" if found else ""

    def past(self) -> PastRun:
        """Return what ``status`` shows of the run."""
        said: dict[str, Any] = {each.name: self.said.get(each.name) for each in fields(PastRun)}
        return PastRun(**said | {"run": self.run, "started": self.started})


def _moment(said: object) -> datetime | None:
    """Return a time that a record says, which is UTC without a zone; None where it is none."""
    try:
        time = datetime.fromisoformat(said) if isinstance(said, str) else None
    except ValueError:
        return None
    return time if time is None or time.tzinfo is not None else time.replace(tzinfo=UTC)


_UNSAID: Final[Mapping[str, Any]] = {
    "start": None, "first": None, "last": None, "records": 0, "objects": 0, "bytes_read": 0,
    "end": None, "committed": None, "lag": None, "state": "unknown",
}  # fmt: skip


def _row(said: Mapping[str, Any]) -> PartitionRow:
    """Return a row of a run record; what this version does not know of is left out."""
    given = known_fields(PartitionRow, {name: one for name, one in said.items() if one is not None})
    given["where"] = TopicPartition(said["topic"], said["partition"])
    given["complete_until"] = _moment(said.get("complete_until"))
    with suppress(KeyError, TypeError, ValueError):
        if given.get("held_up") is not None:
            given["held_up"] = HeldUp.from_dict(given["held_up"])
        if given.get("skipped_offsets") is not None:
            given["skipped_offsets"] = [
                Span(first, last + 1) for first, last in given["skipped_offsets"]
            ]
    return PartitionRow(**{**_UNSAID, **given})


_log: Final = logging.getLogger(__name__)

RECORD_BYTES_MAX: Final = 64 * 2**20
"""A larger run record counts as missing: kbackup did not write it."""

_READERS: Final = 8
"""Run records read side by side, as many as may be in memory; most have a few KB."""


_Kinds = tuple[type, ...]
_TEXT: Final[_Kinds] = (str, NoneType)
_COUNT: Final[_Kinds] = (int, NoneType)

_RECORD: Final[Mapping[str, _Kinds]] = {
    "run": (str,), "command": (str,), "topics_dir": (str,), "exit_code": (int,),
    "seconds": (int, float, NoneType), "records": _COUNT, "objects": _COUNT,
    "bytes_read": _COUNT, "bytes_stored": _COUNT, "names": (list, NoneType), "partitions": (list,),
    "target": _TEXT, "last_success": _TEXT, "result": _TEXT, "group": _TEXT,
    "errors": (list, NoneType),
    "only_partitions": (list, NoneType), "sent": _COUNT, "sent_bytes": _COUNT, "deleted": _COUNT,
    "deleted_bytes": _COUNT,
}  # fmt: skip
_AMOUNTS: Final = frozenset(
    {"seconds", "records", "objects", "bytes_read", "bytes_stored", "sent", "sent_bytes", "deleted",
     "deleted_bytes"}
)  # fmt: skip
_AMOUNT_MOST: Final = 1 << 63

_ROW: Final[Mapping[str, _Kinds]] = {"topic": (str,), "partition": (int,)} | {
    name: (*kinds, NoneType) for name, kinds in plain_kinds(PartitionRow).items()
}


def _checked(record: Any) -> Mapping[str, Any]:
    """Return a run record whose fields, as far as they are read here, are of their types."""
    _check("run record", record, _RECORD, "run")
    for name in _AMOUNTS.intersection(record):
        if not 0 <= (record[name] or 0) < _AMOUNT_MOST:
            raise ValueError(f"{name} of a run record is {record[name]}")
    for name in record.get("names") or ():
        _check("name", {"name": name}, {"name": (str,)})
    for number in record.get("only_partitions") or ():
        _check("partition", {"number": number}, {"number": (int,)})
    for row in record.get("partitions", ()):
        _check("partition", row, _ROW, "topic", "partition")
    return dict(record)


def _check(what: str, data: Any, kinds: Mapping[str, _Kinds], *required: str) -> None:
    if type(data) is not dict:
        raise ValueError(f"a {what} is {data!r}")
    for name in required:
        if name not in data:
            raise ValueError(f"a {what} has no {name}")
    for name in kinds.keys() & data.keys():
        if type(data[name]) not in kinds[name]:
            raise ValueError(f"{name} of a {what} is {data[name]!r}")


def new_run_id(now: datetime) -> str:
    """Return a name for a run that starts *now* (aware), like ``2026-11-21T02:00:00Z-7f3a``."""
    return f"{clock.rfc3339(now)}-{secrets.token_hex(2)}"


def write_run(store: Store, layout: Layout, summary: Ended) -> None:
    """Leave the summary of a run, in place of an earlier one of the same run."""
    record = _as_text({**to_json(summary), "topics_dir": layout.topics_dir})
    key = layout.run_key(summary.run, summary.command)
    if put_json(store, key, record, if_absent=True):
        return
    mine = RunRecord(record)
    there = _read(store, key) or mine
    if (there.run, there.topics_dir) != (mine.run, mine.topics_dir):  # of the same second
        apart = hashlib.sha256((summary.run + layout.topics_dir).encode()).hexdigest()[:8]
        key = layout.run_key(summary.run, summary.command, apart)
    put_json(store, key, record)


def runs(
    store: Store,
    layout: Layout,
    command: str | None = None,
    *,
    now: datetime | None = None,
    recent: "RecentRuns | None" = None,
) -> Iterator[RunRecord]:
    """Yield the records of past runs into this ``topics.dir``, the newest start first.

    Reads at most twice as many records as are asked for, some side by side: stop early.  With
    *now* it lists the last days first, then the last months, and all runs there are only if more
    is asked for: a cron that runs each quarter of an hour leaves 35,000 a year.  A record that
    cannot be read counts as missing.

    Args:
        layout: Runs into another ``topics.dir`` are left out.
        command: Only runs of this one, such as ``sink``; None for all.
        now: Aware.  Runs that claim to have started later than tomorrow come after those of the
            last months.  None: all runs, by one listing.
        recent: What was listed already, in place of the last days and months.
    """
    for keys in _windows(store, layout, command or "", now, recent):
        for record in _read_all(store, keys):
            if record is None or record.topics_dir != layout.topics_dir:
                continue
            if command is None or record.command == command:
                yield record


def selected(asked: TopicFilter) -> dict[str, Any]:
    """Return what the record of a run says of what it was asked for."""
    only = None if asked.partitions is None else sorted(asked.partitions)
    return {"names": sorted(asked.words) or None, "only_partitions": only}


@dataclass(frozen=True, slots=True)
class LastRun:
    """How the newest run of a command went, and when one last went well, if any did."""

    record: RunRecord
    success: datetime | None


_LAST_DAYS: Final = 100
_LAST_READ: Final = 300
"""Three a day: what is verified each day is not to hide what rarely is; each costs a request."""


@dataclass(frozen=True, slots=True)
class RecentRuns:
    """The run records of the last `_LAST_DAYS` days, found by one listing.

    Attributes:
        now: Aware.
        keys: Of all commands, sorted.
    """

    store: Store
    layout: Layout
    now: datetime
    keys: Sequence[str]

    @classmethod
    def listed(cls, store: Store, layout: Layout, now: datetime) -> Self:
        """List them."""
        prefix, first = layout.runs_prefix(), now.astimezone(UTC) - timedelta(days=_LAST_DAYS)
        found = store.list(prefix, after=f"{prefix}{first:%Y-%m-%d}")
        return cls(store, layout, now, [one.key for one in found if _is_of(one, layout, "")])

    def last(self, command: str, asked: TopicFilter) -> LastRun | None:
        """Return how the newest run of a command went.

        Args:
            asked: For what the run was asked at least; one that was asked for nothing had it all.
        """
        newest = None
        for record in self._of(command, asked):
            newest = newest or record
            if record.success is not None:
                return LastRun(newest, record.success)
        return None if newest is None else LastRun(newest, None)

    def proofs(self, asked: TopicFilter) -> "list[Proof]":
        """Return how a backup was verified last, in the order of `MODES`.

        A run for some topics proves nothing where all are *asked* for.
        """
        found: dict[str, Proof] = {}
        for record in self._of(VERIFY, asked):
            said = record.said.get("modes")
            if not isinstance(said, list) or (record.names and not asked.words):
                continue
            for mode in MODES:
                one = found.get(mode)
                if mode in said and (one is None or one.passed is None):
                    newest = one or Proof(mode, record.started, record.said.get("exit_code"), None)
                    found[mode] = replace(newest, passed=record.success)
            if len(found) == len(MODES) and all(one.passed for one in found.values()):
                break
        return [found[mode] for mode in MODES if mode in found]

    def _of(self, command: str, asked: TopicFilter) -> Iterator[RunRecord]:
        layout = self.layout
        keys = [key for key in reversed(self.keys) if layout.is_run_of(key, command)]
        for record in _read_all(self.store, keys[:_LAST_READ]):
            ours = layout.topics_dir, command
            if record is None or (record.topics_dir, record.command) != ours:
                continue
            had_all = not record.names or {*asked.words} <= {*record.names}
            is_late = record.started is not None and record.started > self.now + CLOCKS
            if not is_late and had_all and record.vouches_for(asked.partitions):
                yield record


VERIFY: Final = "restore verify"

MODES: Final = ("deep", "part", "source", "target")
"""What ``restore verify`` compares: records with what is said of them, of all objects or of a part,
and with Kafka's."""


@dataclass(frozen=True, slots=True)
class Proof:
    """How the newest ``restore verify`` of one of `MODES` went.

    Attributes:
        passed: When the newest has begun that found nothing wrong (exit 0); None for none.
    """

    mode: str
    started: datetime | None
    exit_code: int | None
    passed: datetime | None


def write_success(
    store: Store,
    layout: Layout,
    summary: Ended,
    held_up: Mapping[TopicPartition, HeldUp] = MappingProxyType({}),
) -> None:
    """Leave up to when the sink of a summary has stored everything, and what holds it up.

    A later run for the same names and partitions learns that in one request, however many runs came
    between.  What is written last counts, whatever clocks say.

    Args:
        summary: With the facts ``names``, ``only_partitions`` and ``last_success``.
        held_up: Partitions, by the names that they are stored under, with an open transaction.
    """
    said = RunRecord({"run": summary.run, **{name: summary.facts.get(name) for name in _SUCCESS}})
    rows = [
        {"topic": where.topic, "partition": where.partition, **to_json(each)}
        for where, each in sorted(held_up.items())
    ]
    more = {"topics_dir": layout.topics_dir, "held_up": rows}
    put_json(store, _success_key(layout, said.selection), _as_text({**said.said, **more}))


_SUCCESS: Final = ("names", "only_partitions", "last_success")


def _as_text(record: Event) -> Event:
    """Return a record as UTF-8 can have it."""
    # an error may quote what is no text: Python has half a surrogate pair for each such byte
    text = json.dumps(record, ensure_ascii=False).encode(errors="replace")
    return dict(json.loads(text))


def kept_successes(store: Store, layout: Layout) -> dict[Selection, RunRecord]:
    """Return what `write_success` has left, for all that sinks were asked for."""
    keys = [entry.key for entry in store.list(f"{layout.records_prefix()}success/")]
    records = (record for record in _read_all(store, keys) if record is not None)
    return {each.selection: each for each in records if each.topics_dir == layout.topics_dir}


def read_held_up(store: Store, layout: Layout) -> dict[TopicPartition, HeldUp]:
    """Return which partitions open transactions held up when sinks last looked.

    Where several sinks looked, the one that saw the log further on was later.
    """
    found: dict[TopicPartition, HeldUp] = {}
    for record in kept_successes(store, layout).values():
        for where, each in record.held_up.items():
            found[where] = max(
                found.get(where, each), each, key=lambda one: (one.offset, one.end, one.seen)
            )
    return found


def kept_success(store: Store, layout: Layout, selection: Selection) -> RunRecord:
    """Return what `write_success` has left for just that, names in this order; one request.

    Where it has left nothing, the record says nothing.
    """
    return _read(store, _success_key(layout, selection)) or RunRecord({})


def _windows(
    store: Store, layout: Layout, command: str, now: datetime | None, recent: RecentRuns | None
) -> Iterator[list[str]]:
    """Yield the keys of run records, each once, the newest first in each window of time."""
    begins, prefix, seen = [""], layout.runs_prefix(), set[str]()
    if recent is not None:
        end = f"{prefix}{recent.now.astimezone(UTC) + timedelta(2):%Y-%m-%d}"
        seen = {key for key in recent.keys if key < end and layout.is_run_of(key, command)}
        yield sorted(seen, reverse=True)
    elif now is not None:
        today = now.astimezone(UTC)
        days = [f"{today + timedelta(days):%Y-%m-%d}" for days in (1, 0, -1)]
        months = [f"{today:%Y-%m}", f"{today.replace(day=1) - timedelta(1):%Y-%m}"]
        begins = [*days, *months, *begins]
    for begin in begins:
        listed = store.list(f"{prefix}{begin}")
        keys = {entry.key for entry in listed if _is_of(entry, layout, command)}
        yield sorted(keys - seen, reverse=True)
        seen |= keys


def _is_of(entry: StoredObject, layout: Layout, command: str) -> bool:
    """Whether what is listed is the record of a run of *command*; of any, where it is empty."""
    return entry.size <= RECORD_BYTES_MAX and layout.is_run_of(entry.key, command)


def _success_key(layout: Layout, selection: Selection) -> str:
    names, only = selection
    parts = () if only is None else ("", *map(str, sorted(only)))  # no name is empty
    asked = "\n".join((layout.topics_dir, *names, *parts))
    digest = hashlib.sha256(asked.encode()).hexdigest()[:16]
    return f"{layout.records_prefix()}success/{digest}.json"


def _read_all(store: Store, keys: Sequence[str]) -> Iterator[RunRecord | None]:
    """Read records in order, one, then two, four ... at a time: most ask for the newest."""
    # 1,000 of ten days, one after the other, would take 20 s from a bucket that answers in 20 ms
    with ThreadPoolExecutor(_READERS) as pool:
        at, width = 0, 1
        while at < len(keys):
            yield from pool.map(partial(_read, store), keys[at : at + width])
            at, width = at + width, min(2 * width, _READERS)


def _read(store: Store, key: str) -> RunRecord | None:
    """Return a record; None where it is gone, damaged or none of ours."""
    try:
        with store.open(key) as body:
            return RunRecord(_checked(orjson.loads(body.read())))
    except (CorruptObjectError, ObjectNotFoundError, ValueError) as error:
        _log.debug("run record %s counts as missing: %s", key, error)
        return None


_RUNS: Final = 5
"""How many past runs count..."""

_LOOKED_AT: Final = 50
"""...of how many, the newest: most runs of a cron copy little."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a run is likely to take; None where nothing tells.

    Attributes:
        requests: For objects and, of a sink, for the ledger; None where the store counts none.
        as_stored: Of a restore: how many bytes may go in the batches that they are stored in.
    """

    bytes: int | None
    requests: int | None
    seconds: float | None
    as_stored: int | None = field(default=None, metadata=IF_KNOWN)


def _copied(runs: Iterable[RunRecord], counted: str) -> list[RunRecord]:
    """Return good runs of one command that did some of what *counted* counts, the newest first."""
    # those that followed a topic waited for records
    good = (run for run in islice(runs, _LOOKED_AT) if run.is_good and not run.said.get("follow"))
    return [run for run in good if run.said.get(counted)][:_RUNS]


def _seconds(amount: int, runs: Iterable[RunRecord], counted: str) -> float | None:
    """Return how long it takes to do as much of what *counted* counts; None where no run tells."""
    timed = [
        (run.said.get(counted) or 0, work_s, run.said["seconds"])
        for run in runs
        if (work_s := _work_s(run)) and run.said.get("seconds")  # none says it without Spark
    ]
    done = sum(each for each, _, _ in timed)
    if not done:
        return None
    start_s: float = median(max(0.0, whole_s - work_s) for _, work_s, whole_s in timed)
    return round(start_s + amount * sum(work_s for _, work_s, _ in timed) / done, 1)


def _work_s(run: RunRecord) -> float | None:
    timings = run.said.get("timings")
    found = timings.get("work_s") if isinstance(timings, dict) else None
    return found if isinstance(found, (int, float)) and 0 <= found < _AMOUNT_MOST else None


def of_sink(offsets: int, runs: Iterable[RunRecord], store: Store) -> Estimate:
    """Return what it takes to back up *offsets*, each of which may be a record."""
    past = _copied(runs, "records")
    if not past:
        return Estimate(None, None, None)
    records, stored, objects = (
        sum(run.said.get(name) or 0 for run in past)
        for name in ("records", "bytes_stored", "objects")
    )
    size, number = round(offsets * stored / records), ceil(offsets * objects / records)
    requests = None
    if isinstance(store, Served):
        requests = number * (store.puts(size / (number or 1)) + 1)  # and entered
    return Estimate(size, requests, _seconds(offsets, past, "records"))


def of_stored(
    size: int, requests: int | None, amount: int, runs: Iterable[RunRecord], counted: str
) -> Estimate:
    """Return what it takes to restore or copy objects of together *size* bytes, or to delete them.

    Args:
        requests: For that; None where there is no server.
        amount: How much of what *counted* counts there is.
        counted: The field of their records that time goes with.
    """
    return Estimate(size, requests, _seconds(amount, _copied(runs, counted), counted))
