"""Why a run ended as it did, in sentences: errors, headline, reason for the exit code."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from rich.text import Text

from kbackup.cli.grid import fold
from kbackup.cli.quantities import count, digits
from kbackup.cli.streams import OutputStream, escape
from kbackup.errors import LockedError

_ERROR_FIELDS: Final = frozenset({"code", "exit_code", "what", "why", "do", "row", "signal"})
_PLACE_ORDER: Final = ("key", "topic", "partition", "offset")

_MEANING: Final = {
    1: "failed",
    2: "the command line or the configuration is wrong",
    3: "records or objects were skipped",
    4: "refused for safety",
    5: "Kafka cannot be used",
    6: "the store cannot be used",
    7: "the backup is corrupt, incomplete, or lacks what was asked for",
    8: "another run holds the lock",
    9: "Spark failed",
    130: "stopped by SIGINT",
    143: "stopped by SIGTERM",
}
"""What an exit code means if nothing more precise is known."""

_MORE_PRECISE: Final = {
    "registry": "the Schema Registry cannot be used",
    "outdated": "the newest good run is too old, or there is none",
    "audit": "the target does not hold what was written to it",
}
"""What an exit code means if all errors have this code."""

_UNTOUCHED: Final = frozenset({"to do", "up to date", "empty", "emptied", "held up", "refused"})
"""States of a partition that a run has planned and not worked on."""

REFUSED: Final = 4
LOCKED: Final = 8


def render_error(error: Mapping[str, Any], width: int | None = None) -> str:
    """Return an error in its three parts: what failed and where, why, what to do.

    Args:
        error: `KbackupError.to_dict`; a part that is absent, null or empty is left out.
        width: Columns to fold at; None leaves each part on one line.
    """
    what = error.get("what") or error.get("code") or "failed"
    parts = [hang("error: ", what + _place(error, what, error.get("why") or ""), width)]
    for title, name in (("  why: ", "why"), ("  do:  ", "do")):
        if text := error.get(name):
            parts.append(hang(title, text, width))
    return "\n".join(parts)


def sentence(error: Mapping[str, Any]) -> str:
    """Return an error as one paragraph: what, why and what to do."""
    failed = ": ".join(filter(None, [error.get("what"), error.get("why")]))
    return f"{failed.removesuffix('.')}. {error['do']}" if error.get("do") else failed


def hang(title: str, text: str, width: int | None = None) -> str:
    """Return *text*, escaped line by line, after *title*; further lines hang under the first."""
    room = None if width is None else max(width - len(title), 1)
    lines = [line for part in text.splitlines() for line in fold(escape(part.rstrip()), room)] or [
        ""
    ]
    return title + f"\n{' ' * len(title)}".join(lines)


def _place(error: Mapping[str, Any], *said: str) -> str:
    """Name where it happened, as far as the sentences have not."""
    names = [name for name in _PLACE_ORDER if error.get(name) is not None]
    names += sorted(
        name
        for name, value in error.items()
        if name not in _ERROR_FIELDS and name not in names and isinstance(value, int | str)
    )
    missing = [
        f"{name} {error[name]}"
        for name in names
        if not any(str(error[name]) in text for text in said)
    ]
    return f" ({', '.join(missing)})" if missing else ""


def title(command: str) -> str:
    """Return the command's short name: ``sink`` for ``sink run``."""
    return command.removesuffix(" run")


def is_run(command: str) -> bool:
    """Return whether *command* copies records, rather than looks at what is there."""
    return title(command) in {"sink", "restore"}


def skips(skipped: Mapping[str, int]) -> str:
    """Return counts by name as in the column of a table: ``3 bad, 2 foreign objects``."""
    named = [
        f"{digits(number)} {name.removesuffix('_records')}"
        if name.endswith("_records")
        else _counted(number, name)
        for name, number in skipped.items()
        if number
    ]
    return ", ".join(named) or "0"


def _counted(number: int, name: str) -> str:
    """Return a count by its name: ``1 bad object``, ``1 filtered``."""
    nouns, of, rest = name.replace("_", " ").partition(" of ")
    if not nouns.endswith("s"):
        return f"{digits(number)} {nouns}{of}{rest}"
    return f"{count(number, nouns.removesuffix('s'))}{of}{rest}"


def left_out(rows: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return how many records of *rows*, of partitions, the configuration left out, by reason."""
    rows = list(rows)
    counts = {
        "filtered": sum(row.get("filtered") or 0 for row in rows),
        "null values": sum(row.get("nulls_left_out") or 0 for row in rows),
    }
    return {name: number for name, number in counts.items() if number}


def skip_sentence(skipped: Mapping[str, int]) -> str:
    """Return what was skipped or missing as a sentence; empty where nothing was.

    Tombstones are left out: dropping them is what ``behavior.on.null.values=ignore`` asked for.
    """
    counted = {name: n for name, n in skipped.items() if n and not name.endswith("tombstones")}
    records = {name: n for name, n in counted.items() if name.endswith("_records")}
    sentences = [f"{count(sum(records.values()), 'record')} skipped"] if records else []
    for name, number in counted.items():
        words = name.replace("_", " ")
        state, _, nouns = words.partition(" ")
        if state in ("missing", "incomplete"):
            sentences.append(f"{count(number, nouns.removesuffix('s'))} {state}")
        elif name not in records:
            sentences.append(f"{_counted(number, name)} skipped")
    return ", ".join(sentences)


def headline(summary: Mapping[str, Any]) -> str:
    """Return how a run ended, in one line: ``sink finished, 3 records skipped``."""
    name, result = title(summary["command"]), summary["result"]
    if result == "ok":
        return f"{name} finished" + (", nothing new" if is_idle(summary) else "")
    if result == "skipped":
        sentence = skip_sentence(summary.get("skipped") or {})
        return f"{name} finished, {sentence}" if sentence else f"{name} finished with gaps"
    return f"{name} {result}"


def is_idle(summary: Mapping[str, Any]) -> bool:
    """Return whether a run has copied or changed nothing and left nothing out."""
    counts = [summary.get("objects"), *(summary.get("skipped") or {}).values()]
    counts += left_out(summary.get("partitions") or ()).values()
    counts += [len(summary.get(name) or ()) for name in ("settled", "unsettled")]
    counts += [1 for row in summary.get("partitions") or () if row.get("held_up")]
    return summary.get("records") == 0 and not any(counts)


def has_worked(summary: Mapping[str, Any]) -> bool:
    """Return whether a run got far enough for another run to continue it."""
    return summary["result"] == "stopped" or any(
        row.get("records") or row.get("state", "to do") not in _UNTOUCHED
        for row in summary.get("partitions") or ()
    )


def exit_reason(summary: Mapping[str, Any], refused: int = 0) -> str:
    """Return why the exit code is not 0, in one line; empty where it is 0.

    Args:
        summary: The summary; its ``reason`` is taken as it is where it has one.
        refused: Number of topics that a plan refuses.
    """
    if (code := summary["exit_code"]) == 0:
        return ""
    return f"exit {code}: {escape(summary.get('reason') or _reason(summary, code, refused))}"


def _reason(summary: Mapping[str, Any], code: int, refused: int) -> str:
    skipped = summary.get("skipped") or {}
    if code == 3 and (sentence := skip_sentence(skipped)):
        by_name = {name: n for name, n in skipped.items() if name.endswith("_records")}
        return f"{sentence} ({skips(by_name)})" if by_name else sentence
    if code == REFUSED and refused:
        return f"{count(refused, 'topic')} refused, nothing will run"
    errors = summary.get("errors") or ()
    codes = {error.get("code") for error in errors}
    text = _MORE_PRECISE.get(codes.pop()) if len(codes) == 1 else None
    text = text or _MEANING.get(code, "failed")
    return text + (f" ({len(errors)} errors)" if len(errors) > 1 else "")


class Failures:
    """Prints what failed when the command is over; nothing where nothing did."""

    def __init__(self, stderr: OutputStream, *, has_reason: bool, is_quiet: bool = False) -> None:
        """Choose what is printed.

        Args:
            stderr: Where.
            has_reason: Whether a failure without an error, such as a skip, is explained.
            is_quiet: Whether to print nothing about a lock that another run of the same work
                holds: cron runs overlap.
        """
        self._stderr = stderr
        self._has_reason = has_reason
        self._is_quiet = is_quiet

    def tell(self, event: Mapping[str, Any]) -> None:
        """Do nothing: what is not in the summary has not failed the command."""

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Print each error in its three parts, or the reason of the exit code."""
        errors = summary.get("errors") or ()
        codes = {error.get("code") for error in errors}
        if self._is_quiet and summary["exit_code"] == LOCKED and codes <= {LockedError.code}:
            return
        for error in errors:
            print_error(self._stderr, error)
        if self._has_reason and not errors and summary["exit_code"] != 0:
            self._stderr.line(exit_reason(summary))


def print_error(stderr: OutputStream, error: Mapping[str, Any]) -> None:
    """Print an error, folded to the width of *stderr*, its first word in red."""
    text = Text(render_error(error, stderr.width))
    text.stylize("bold red", 0, len("error:"))
    stderr.text(text)
