"""What people read on stdout: a table for each command, its totals, and how it ended.

Doubts, errors and the reason of the exit code go to stderr: what follows a table in a pipe is data.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.text import Text

from kbackup.cli import tables
from kbackup.cli.progress import warning_text
from kbackup.cli.tables import Listing, counted_by_name, is_run, left_out, skips, title, total
from kbackup.cli.terminal import (
    OutputStream,
    count,
    digits,
    duration,
    escape,
    fold_command,
    hang,
    size,
)
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
    for lead, name in (("  why: ", "why"), ("  do:  ", "do")):
        if text := error.get(name):
            parts.append(hang(lead, text, width))
    return "\n".join(parts)


def sentence(error: Mapping[str, Any]) -> str:
    """Return an error as one paragraph: what, why and what to do."""
    failed = ": ".join(filter(None, [error.get("what"), error.get("why")]))
    return f"{failed.removesuffix('.')}. {error['do']}" if error.get("do") else failed


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


def skip_sentence(skipped: Mapping[str, int]) -> str:
    """Return what was skipped or missing as a sentence; empty where nothing was.

    Tombstones are left out: dropping them is what ``behavior.on.null.values=ignore`` asked for.
    """
    counted = {name: n for name, n in skipped.items() if n and not name.endswith("tombstones")}
    records = {name: n for name, n in counted.items() if name.endswith("_records")}
    sentences = [f"{count(sum(records.values()), 'record')} skipped"] if records else []
    for name, n in counted.items():
        state, _, nouns = name.replace("_", " ").partition(" ")
        if state in ("missing", "incomplete"):
            sentences.append(f"{count(n, nouns.removesuffix('s'))} {state}")
        elif name not in records:
            sentences.append(f"{counted_by_name(n, name)} skipped")
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


Event = Mapping[str, Any]

_RESULTS: Final = {
    "missing_object": "MISSING",
    "corrupt": "CORRUPT",
    "overlap": "OVERLAP",
    "gap": "GAP",
    "wrong_topic": "WRONG TOPIC",
    "count_mismatch": "COUNT MISMATCH",
    "unsupported_object": "NOT SUPPORTED",
}
"""The words of a finding in the column of results; other codes are written as they are."""

_ABSENT: Final = frozenset({"missing_object", "gap"})
"""Findings about what is not there, so that no object read is bad."""


def verify_table(partitions: Sequence[Event], findings: Sequence[Event]) -> Listing:
    """Return what was found, a row a partition and further lines for further findings."""
    rows: list[list[str]] = []
    for row in partitions:
        results = _results(row, findings)
        numbers = [digits(row.get("objects")), digits(row.get("records"))]
        rows.append([row["topic"], str(row["partition"]), *numbers, results[0]])
        rows += [["", "", "", "", result] for result in results[1:]]
    placed = {(row["topic"], row["partition"]) for row in partitions}
    rows += [
        [str(found.get("topic") or "-"), _partition(found), "", "", _found(found)]
        for found in findings
        if (found.get("topic"), found.get("partition")) not in placed
    ]
    heads = {"topic": False, "p": True, "objects": True, "records": True, "result": False}
    return Listing(tables.of_texts(heads), rows)


def _partition(finding: Event) -> str:
    return "-" if finding.get("partition") is None else str(finding["partition"])


def _results(row: Event, findings: Sequence[Event]) -> list[str]:
    """Return the errors of a partition, or its state with what is to be noted."""
    place = row["topic"], row["partition"]
    here = [found for found in findings if (found.get("topic"), found.get("partition")) == place]
    if errors := [_found(found) for found in here if found["level"] == "error"]:
        return errors
    notes = [_found(found) for found in here]
    return [", ".join([row.get("state") or "not checkable", *notes])]


def _found(finding: Event) -> str:
    """Return a finding: its kind, the object's name, what is wrong, the offsets."""
    name = str(finding.get("key") or "").rsplit("/", 1)[-1]
    text = finding.get("text")
    if finding["level"] != "error":
        said = str(text or finding["code"].replace("_", " "))
        return f"{name}: {said}" if name and name not in said else said
    kind = _kind(finding["code"])
    head = f"{kind} {name}" if name else kind
    offsets = finding.get("offsets")
    where = f" (offsets {offsets[0]}-{offsets[1]})" if offsets and not text else ""
    return f"{head}: {text}" if text else f"{head}{where}"


def _kind(code: str) -> str:
    return _RESULTS.get(code, code.replace("_", " ").upper())


def verify_count(summary: Event, partitions: Sequence[Event], findings: Sequence[Event]) -> str:
    """Return the line below the findings: what was read, what is good, what is not."""
    errors = [finding for finding in findings if finding["level"] == "error"]
    objects = summary.get("objects")
    if objects is None:
        objects = total(partitions, "objects")
    parts, results = [count(objects, "object")], []
    if summary.get("bytes_read"):
        parts = [f"{parts[0]} read", size(summary["bytes_read"])]
        damaged = {error.get("key") for error in errors if error["code"] not in _ABSENT}
        results = [f"{digits(objects - len(damaged))} good"] if objects is not None else []
    results += [
        f"{digits(number)} {_kind(code).lower()}"
        for code, number in Counter(error["code"] for error in errors).items()
    ]
    if not errors and summary.get("errors"):
        results.append("not all of it could be checked")
    parts.append(duration(summary.get("seconds")))
    if not results:  # what is missing is known by the ledger
        no_ledger = any(each["code"] == "no_ledger" for each in summary.get("warnings") or ())
        results = ["nothing wrong with what is there" if no_ledger else "nothing wrong"]
    return f"{', '.join(parts)}: {', '.join(results)}"


_RUNNING: Final = "running: {run} on {host}, since {started}"
_CHECK_STYLES: Final = {"ok": "green", "warn": "yellow", "fail": "bold red"}


RECORDS: Final = frozenset({"restore peek", "restore query"})
"""Commands that print records or rows, and nothing beside them."""


class Screens:
    """Collects what is to be in a table, and prints it when it is complete."""

    def __init__(self, command: str, stdout: OutputStream, stderr: OutputStream) -> None:
        self._command = command
        self._is_run = is_run(command)
        self._stdout = stdout
        self._stderr = stderr
        self._start: Event = {}
        self._events: dict[str, list[Event]] = {}
        self._is_plan_shown = False

    def tell(self, event: Event) -> None:
        """Keep *event* for its table; print what need not wait for others."""
        match event["type"]:
            case "start":
                self._start = event
            case "check":
                self._print_check(event)
            case "topic_setting":
                before, after = (
                    "the default" if event[name] is None else event[name]
                    for name in ("before", "after")
                )
                self._stdout.line(f"{event['topic']}: {event['name']}  {before} -> {after}")
            case "upload":
                self._stdout.line(f"{event['key']}  begun {event['begun']}")
            case "thaw":
                self._stdout.line(thawing(event))
            case "ddl":
                for line in (*event["sql"].split("\n"), ""):
                    self._stdout.line(line)
            case "plan" if self._is_run and self._of("plan_topic"):
                self._print_plan()
        if event["type"] not in {"progress", "object"}:
            self._events.setdefault(event["type"], []).append(event)

    def finish(self, summary: Event) -> None:
        """Print the tables, the doubts, the errors and the reason of the exit code."""
        planned = () if self._command == "sink plan" else self._of("plan_topic")
        refused = [topic for topic in planned if topic["action"] == "refuse"]
        refusals, errors = told_once(refused, summary.get("errors") or (), is_run=self._is_run)
        errors = unchecked(errors, self._of("check"))
        if errors and not self._has_result(summary):
            pass  # the errors say it all
        elif self._command in RECORDS | {"sink ddl"}:
            pass  # the records, or the statements, are the result
        elif self._is_run:
            self._finish_run(summary)
        else:
            self._print_tables(summary)
        for refusal in refusals:
            self._stderr.hang("refused: ", refusal, "bold red")
        if not self._is_run:  # a run's warnings were log lines
            for warning in self._of("warning") or summary.get("warnings") or ():
                self._stderr.hang("warning: ", warning_text(warning), "yellow")
        for error in errors:
            print_error(self._stderr, error)
        self._print_next(summary)
        if reason := exit_reason(summary, len(refused)):
            self._stderr.paragraph(reason)

    def _of(self, kind: str) -> list[Event]:
        return self._events.get(kind, [])

    def _has_result(self, summary: Event) -> bool:
        """Return whether there is anything to put into a table."""
        told = self._events.keys() - {"start", "warning"}
        return bool(told or summary.get("partitions") or summary.get("topics"))

    def _finish_run(self, summary: Event) -> None:
        if self._of("plan_topic"):
            self._print_plan()
        self._stdout.paragraph(headline(summary))
        if (summary.get("topics") or summary.get("partitions")) and not is_idle(summary):
            tables.run_table(summary).draw(self._stdout)
        elif nothing := emptiness(summary):
            self._stdout.paragraph(nothing)
        facts = [f"run {summary['run']}"] if summary.get("run") else []
        if summary.get("seconds") is not None:
            facts.append(f"took {duration(summary['seconds'])}")
        if summary.get("group") and summary.get("records"):
            facts.append(f"offsets committed to group {summary['group']}")
        if facts:
            self._stdout.paragraph("  ".join(facts))
        for line in restored(summary):
            self._stdout.paragraph(line)

    def _print_plan(self) -> None:
        """Print the plan of a restore once: before the work, or at the end if none was done."""
        if self._is_plan_shown:
            return
        self._is_plan_shown = True
        for line in plan_head(self._start, is_dry=not self._is_run):
            self._stdout.paragraph(line)
        topics = self._of("plan_topic")
        self._stdout.text("")
        tables.plan_table(topics).draw(self._stdout)
        self._stdout.text("")
        self._stdout.paragraph(tables.plan_count(topics))
        if planned := self._of("plan_schemas"):
            self._stdout.paragraph(tables.schemas_count(planned))

    def _print_tables(self, summary: Event) -> None:
        partitions = merged(self._of("partition"), summary.get("partitions") or ())
        match self._command:
            case "restore plan":
                self._print_plan()
            case "sink plan":
                entries = [entry for plan in self._of("plan") for entry in plan["partitions"]]
                self._print(tables.sink_plan_table(entries), tables.sink_plan_count(entries))
                if self._start.get("group"):
                    self._stdout.paragraph(f"positions are kept in group {self._start['group']}")
            case "restore topics":
                self._print_topics(partitions)
            case "restore verify":
                found = self._of("finding")
                listing = verify_table(partitions, found)
                self._print(listing, verify_count(summary, partitions, found))
            case "sink status" | "restore status":
                listing = tables.status_table(partitions)
                self._print(listing, count(len(partitions), "partition"))
                runs = summary.get("runs") or ()
                self._print(tables.runs_table(runs), count(len(runs), "run"))
                for holder in summary.get("running") or ():
                    self._stdout.paragraph(_RUNNING.format(**holder))
            case "sink prune":
                self._stdout.paragraph(pruned(summary))
            case "config show":
                settings = self._of("setting")
                self._print(tables.settings_table(settings), count(len(settings), "setting"))
            case "plugins":
                plugins = self._of("plugin")
                self._print(tables.plugins_table(plugins), count(len(plugins), "plugin"))
            case "doctor" | "config check":
                self._stdout.paragraph(checks_count(self._of("check")))
            case _:
                self._stdout.paragraph(headline(summary))

    def _print_topics(self, partitions: Sequence[Event]) -> None:
        self._print(tables.topics_table(partitions), tables.topics_count(partitions))
        tables.draw_map(self._of("coverage"), self._stdout)
        if found := self._of("schema"):
            self._stdout.text("")
            tables.named_schemas_table(found).draw(self._stdout)

    def _print(self, listing: Listing, counted: str) -> None:
        """Print a table and its count; no table where it has no rows."""
        if listing.rows:
            listing.draw(self._stdout)
            self._stdout.text("")
        self._stdout.paragraph(counted)

    def _print_check(self, check: Event) -> None:
        level, text = check["level"], f"{check['area']} {check['name']}: {check['text']}"
        self._stdout.hang(f"{level:<5} ", text, _CHECK_STYLES.get(level, ""))
        if check.get("do"):
            self._stdout.hang("      do: ", check["do"])

    def _print_next(self, summary: Event) -> None:
        if summary.get("next"):
            is_verify = self._command == "restore verify"
            repair = "to write them again while the cluster still has the records:"
            self._stdout.paragraph(repair if is_verify else "to continue:")
            self._stdout.text("\n".join(fold_command(escape(summary["next"]), self._stdout.width)))


def told_once(
    refused: Sequence[Event], errors: Sequence[Event], *, is_run: bool
) -> tuple[list[str], list[Event]]:
    """Return refusals as sentences, and the errors that are not among them.

    A plan shows refusals below its table, a run as errors in three parts.  A refused topic without
    an error is shown with its reason.
    """
    said = [] if is_run else [error for error in errors if error.get("exit_code") == REFUSED]
    codes = {error.get("code") for error in errors}
    reasons = [
        topic.get("reason") or f"{topic['source']} cannot be restored"
        for topic in refused
        if topic.get("code") not in codes
    ]
    sentences = [sentence(error) for error in said] + reasons
    return sentences, [error for error in errors if error not in said]


def unchecked(errors: Sequence[Event], checks: Sequence[Event]) -> list[Event]:
    """Return the errors that were not shown as failed checks."""
    failed = [(check["area"], check["name"]) for check in checks if check["level"] == "fail"]
    return [error for error in errors if (error.get("area"), error.get("name")) not in failed]


def plan_head(start: Event, *, is_dry: bool) -> list[str]:
    """Return the lines above a restore plan: from where, to where."""
    lines = ["restore plan (dry run, nothing will be written)" if is_dry else "restore plan"]
    if start.get("store"):
        source = "/".join(filter(None, [str(start["store"]).rstrip("/"), start.get("topics_dir")]))
        lines.append(
            "   ".join([f"from  {source}", *_facts(start, "format", "view", "partitioner")])
        )
    if start.get("target"):
        cluster = f" (cluster {start['cluster_id']})" if start.get("cluster_id") else ""
        renames = [f"rename {regex} -> {new}" for regex, new in start.get("renames") or ()]
        lines.append("   ".join([f"to    {start['target']}{cluster}", *renames]))
    return lines


def _facts(start: Event, *names: str) -> list[str]:
    return [f"{name} {start[name]}" for name in names if start.get(name)]


_AUDITS: Final = {
    "plain": "audit: the target has grown by exactly the records that were written",
    "counted": "audit: the records in the target were counted, no difference",
    "not made": "audit: not made, the records in the target were not counted",
}
"""The sentence for each way an audit succeeded, or was not made."""


_NAMED: Final = 5
"""Created topics that are named; the plan above has them all."""


def restored(summary: Event) -> list[str]:
    """Return what to know about the target after a restore has written to it."""
    if not summary.get("records") or title(summary["command"]) != "restore":
        return []
    is_wrong = any(error.get("code") == "audit" for error in summary.get("errors") or ())
    audit = None if is_wrong else _AUDITS.get(summary.get("audit") or "")
    planned = summary.get("plan") or ()
    created = [topic["target"] for topic in planned if topic.get("retention_ms") == "-1"]
    names = ", ".join(created[:_NAMED]) + (", ..." if created[_NAMED:] else "")
    remind = f"created to keep everything until retention.ms is set back: {names}"
    return [*([audit] if audit else []), *([remind] if created else [])]


def emptiness(summary: Event) -> str:
    """Return which topics of a sink without news hold no record at all, and why."""
    if title(summary["command"]) != "sink":
        return ""
    found = {
        row["topic"]: tables.without_records(summary, row["topic"])
        for row in summary.get("partitions") or ()
    }
    told = [f"{topic} ({why})" for topic, why in found.items() if why not in ("", "up to date")]
    more = ", ..." if told[_NAMED:] else ""
    return f"without records: {', '.join(told[:_NAMED])}{more}" if told else ""


def merged(rows: Sequence[Event], others: Sequence[Event]) -> list[dict[str, Any]]:
    """Return one row a partition, in order, with what is known of it from both."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for row in [*rows, *others]:
        known = {name: value for name, value in row.items() if value is not None}
        found.setdefault((row["topic"], row["partition"]), {}).update(known)
    return [found[place] for place in sorted(found)]


def pruned(summary: Event) -> str:
    """Return what became of unfinished uploads."""
    found, aborted, younger = (summary.get(name, 0) for name in ("found", "aborted", "younger"))
    done = f"{count(aborted, 'unfinished upload')} aborted"
    if found > aborted:
        done = f"{count(found, 'unfinished upload')} would be aborted"
    return done + (f", {digits(younger)} left alone: too recent" if younger else "")


def thawing(event: Event) -> str:
    """Return how far the archived objects of a topic have come."""
    parts = [
        f"{count(event['asked'], 'object')} asked for ({size(event['bytes'])})",
        f"{digits(event['thawing'])} on their way",
        f"{digits(event['ready'])} can be read",
    ]
    numbers = (event["asked"], event["thawing"], event["ready"])
    told = [part for part, number in zip(parts, numbers, strict=True) if number]
    until = f" until {event['until']}" if event["until"] else ""
    name = event["topic"] or "the backup's ledger"
    return f"{name}: {', '.join(told) or 'nothing is archived'}{until}"


def checks_count(checks: Sequence[Event]) -> str:
    """Return the line below the checks of ``doctor``."""
    levels = [f"{sum(c['level'] == level for c in checks)} {level}" for level in _CHECK_STYLES]
    return f"{count(len(checks), 'check')}: {', '.join(levels)}"
