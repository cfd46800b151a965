"""What a run reports at its end: one dictionary, the same for people, scripts and run records."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from time import monotonic
from typing import Any, Final, Self

from kbackup.errors import Issue, KbackupError, StoppedError, worst
from kbackup.events import Event, Warned, to_json
from kbackup.records import TopicPartition
from kbackup.runs.report import HeldUp

_SKIPPED: Final = 3

HELD_UP: Final = "held_up"
"""Code of the warning that an open transaction holds a partition's backup up."""

LEFT_BEHIND: Final = "held_up_offsets"
"""Counts the offsets that transactions which are open for too long keep from the backup."""


class Summary:
    """Collects what happened; `finish` turns it into the summary line.

    Attributes:
        partitions: One row a topic-partition, with its ``state``.
        skipped: Counts of what was left out, by reason.
        facts: Further fields of the summary line.
        remarks: Warnings that hold for now, by what they are of.
        standing: Errors that hold for now, by what they are of.  They are the reason of the exit
            code even where a signal ends the run: it stopped something that was not whole.
    """

    def __init__(self, run: str, command: str) -> None:
        self.run, self.command = run, command
        self.partitions: list[Event] = []
        self.skipped: dict[str, int] = {}
        self.facts: Event = {}
        self.remarks: dict[Any, Warned] = {}
        self.standing: dict[Any, Issue] = {}
        self._errors: list[Issue] = []
        self._warnings: list[Warned] = []
        self._told: dict[TopicPartition, tuple[float, bool]] = {}
        self._started = monotonic()

    def fail(self, error: KbackupError | Issue) -> None:
        """Take an error; the same one is kept once."""
        failure = error.issue() if isinstance(error, KbackupError) else error
        if failure not in self._errors:
            self._errors.append(failure)

    def warn(self, code: str, text: str, **place: Any) -> Warned:
        """Take a warning; return it, to be told."""
        warned = Warned(code, text, place, run=self.run)
        self._warnings.append(warned)
        return warned

    def skip(self, reason: str, count: int = 1) -> None:
        """Count something that was left out and makes the run exit 3."""
        if count:
            self.skipped[reason] = self.skipped.get(reason, 0) + count

    def held_up(self, found: Mapping[TopicPartition, HeldUp]) -> list[Warned]:
        """Take what open transactions hold up now, in place of what they did; return the news.

        What holds a partition up is news once, and once more when it does so for too long: then
        what is behind it is left out.
        """
        for key in [key for key in self.remarks if key[0] == HELD_UP and key[1] not in found]:
            del self.remarks[key]
        news = []
        for where, each in found.items():
            said = Warned.about(where, HELD_UP, each.text(where), self.run)
            self.remarks[HELD_UP, where] = said
            if self._told.get(where) != (each.since, each.is_long):
                self._told[where] = each.since, each.is_long
                news.append(said)
        self.skipped.pop(LEFT_BEHIND, None)
        self.skip(LEFT_BEHIND, sum(each.behind for each in found.values() if each.is_long))
        return news

    def total(self, name: str) -> int | None:
        """Return the sum of a column of the partitions, None where one of them is unknown."""
        counts = [row[name] for row in self.partitions if name in row]
        return None if None in counts else sum(counts)

    def _is_run(self) -> bool:
        """Whether the rows say what was stored, rather than, as ``bytes``, what is there."""
        return any("bytes_stored" in row for row in self.partitions)

    def exit_code(self, signal: int | None = None) -> int:
        """Return the exit code of all that happened; *signal* is the one that stopped the run."""
        if signal is not None and not self.standing:
            return 128 + signal
        codes = [failure.exit_code for failure in self._all_errors()]
        return worst([*codes, _SKIPPED if self.skipped else 0])

    def _all_errors(self) -> list[Issue]:
        found = [failure for failure in self._errors if failure.code != StoppedError.code]
        for failure in self.standing.values():
            if failure not in found:
                found.append(failure)
        return found

    def finish(self, signal: int | None = None) -> Event:
        """Return the summary line."""
        code = self.exit_code(signal)
        return {
            "type": "summary",
            "v": 1,
            "run": self.run,
            "command": self.command,
            "result": _result(code),
            "exit_code": code,
            "seconds": round(monotonic() - self._started, 1),
            "records": self.total("records"),
            "objects": self.total("objects"),
            "bytes_read": self.total("bytes_read"),
            "bytes_stored": self.total("bytes_stored" if self._is_run() else "bytes"),
            "skipped": self.skipped,
            "partitions": self.partitions,
            "topics": _topics(self.partitions),
            "errors": [failure.to_dict() for failure in self._all_errors()],
            "warnings": [to_json(one) for one in (*self._warnings, *self.remarks.values())],
            **self.facts,
        }


def _result(code: int) -> str:
    words = {0: "ok", 3: "skipped", 4: "refused", 130: "stopped", 143: "stopped"}
    return words.get(code, "stopped" if code > 128 else "failed")


@dataclass(frozen=True, slots=True)
class _Topic:
    """The sums of a topic's partitions; `asdict` gives its row of the summary."""

    topic: str
    target: str | None
    partitions: int = 0
    records: int = 0
    objects: int = 0
    bytes: int = 0
    skipped: int = 0

    def plus(self, row: Event) -> Self:
        stored = row.get("bytes_stored") or row.get("bytes")  # a look has the second name
        return replace(
            self,
            partitions=self.partitions + 1,
            records=self.records + (row.get("records") or 0),
            objects=self.objects + (row.get("objects") or 0),
            bytes=self.bytes + (stored or row.get("bytes_read") or 0),
            skipped=self.skipped + (row.get("skipped") or 0),
        )


def _topics(rows: list[Event]) -> list[Event]:
    """Sum the partitions of each topic, or of each topic that records of one are restored to."""
    found: dict[tuple[str, str | None], _Topic] = {}
    for row in rows:
        place = row["topic"], row.get("target")
        found[place] = found.get(place, _Topic(*place)).plus(row)
    return [asdict(topic) for topic in found.values()]
