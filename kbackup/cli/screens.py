"""Print for people on stdout: a table for each command, its totals, and how it ended.

Doubts, errors and the reason of the exit code go to stderr: what follows a table in a pipe is data.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from rich.text import Text

from kbackup.cli import tables
from kbackup.cli.progress import warning_text
from kbackup.cli.tables import (
    ListColumn,
    Listing,
    counted_by_name,
    is_run,
    left_out,
    rows_of,
    says_state,
    skips,
    title,
)
from kbackup.cli.terminal import (
    OutputPart,
    OutputStream,
    count,
    digits,
    duration,
    escape,
    fold_command,
    hang,
    size,
)
from kbackup.clock import rfc3339, time_span
from kbackup.errors import Issue, LockedError, some
from kbackup.events import (
    Ended,
    NextCommand,
    Plain,
    RestoreStart,
    RestoreTopic,
    Started,
    TopicPlanned,
    kind_of,
)
from kbackup.inspect import Check
from kbackup.naming import place_of

if TYPE_CHECKING:  # what finds these imports clients that help does not need
    from kbackup.catalog.drills import DrillReport
    from kbackup.catalog.findings import Finding, PartitionVerdict
    from kbackup.catalog.rekeying import RecipientState
    from kbackup.inspect.topics import StoredPartition, Thawed
    from kbackup.runs.history import Estimate
    from kbackup.sink.copy import TopicCopied
    from kbackup.sink.expire import ExpiryPlanned

_UNNAMED: Final = frozenset({"code", "exit_code", "what", "why", "do", "row", "signal"})
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
    "differs": "records in Kafka are not those of the backup",
    "drill": "a recovery would take longer, or lose more, than it may",
}
"""What an exit code means if all errors have this code."""

_UNTOUCHED: Final = frozenset({"to do", "up to date", "empty", "emptied", "held up", "refused"})
"""States of a partition that a run has planned and not worked on."""

REFUSED: Final = 4
LOCKED: Final = 8


def render_error(error: Issue, width: int | None = None) -> str:
    """Return an error in its parts: what failed and where, why, what to do, where more is said.

    They are folded at *width* columns; None leaves each part on one line.
    """
    parts = [hang("error: ", error.what + _place(error), width)]
    for lead, text in (("  why: ", error.why), ("  do:  ", error.do)):
        if text:
            parts.append(hang(lead, text, width))
    return "\n".join([*parts, _more(error)])


def _more(error: Issue) -> str:
    return f"  more: kbackup explain {error.code}"


def sentence(error: Issue) -> str:
    """Return an error as one paragraph: what, why and what to do."""
    failed = str(error).removesuffix(".")
    return f"{failed}. {error.do}" if error.do else str(error)


def _place(error: Issue) -> str:
    """Name where it happened, as far as the sentences have not."""
    place = {name: value for name, value in error.place.items() if name not in _UNNAMED}
    names = [name for name in _PLACE_ORDER if place.get(name) is not None]
    names += sorted(
        name for name, value in place.items() if name not in names and isinstance(value, int | str)
    )
    missing = [
        f"{name} {place[name]}"
        for name in names
        if not any(str(place[name]) in text for text in (error.what, error.why))
    ]
    return f" ({', '.join(missing)})" if missing else ""


def status_foot(facts: Mapping[str, Any]) -> list[str]:
    """Return what ``status`` says behind its tables, a line each."""
    lines: list[str] = []
    if (success := facts.get("last_success")) is not None:
        lines.append(f"complete up to {rfc3339(success)}, {time_span(facts['age_s'])} ago")
    if "captures" in facts:
        lines += [_captures(facts["captures"]), _access(facts.get("access_kept"))]
    if "last_drill" in facts:
        lines.append(_last_drill(facts["last_drill"]))
        lines += [f"verify ({one.mode}): {_passed(one)}" for one in facts.get("proofs", ())]
    return lines + [
        f"running: {one.run} on {one.host}, since {one.started}" for one in facts.get("running", ())
    ]


def _access(found: Any) -> str:
    """Return what is kept of who may do what; None: nothing is."""
    if found is None:
        return "ACLs and users: not captured"
    parts = {"ACL": found.acls, "user": found.users}
    numbers = (f"no {noun}s" if n is None else count(n, noun) for noun, n in parts.items())
    return f"ACLs and users: captured {rfc3339(found.taken)}, {', '.join(numbers)}"


def _last_drill(found: Any) -> str:
    """Return how the newest drill has ended; None: there was none."""
    if found is None:
        return "drills: none yet"
    return f"drills: {_passed(found)}"


def _passed(found: Any) -> str:
    passed = "none has passed" if found.passed is None else f"last passed {rfc3339(found.passed)}"
    last = "" if found.exit_code == 0 else f", the last one failed (exit {found.exit_code})"
    return f"{passed}{last}"


def _captures(found: Any) -> str:
    """Return what is kept of where consumer groups stood; None: nothing is."""
    if found is None:
        return "consumer groups: not captured yet"
    maybe = "" if found.is_complete else ", maybe not all groups"
    return (
        f"consumer groups: captured since {rfc3339(found.since)}, last {rfc3339(found.newest)}, "
        f"{count(found.groups, 'group')}{maybe}"
    )


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
            said = counted_by_name(n, name)
            sentences.append(said if says_state(name) else f"{said} skipped")
    return ", ".join(sentences)


_TOLD: Final = frozenset({"sink reindex", "sink accept"})
"""Commands that have told what they did topic by topic, in no row of a table."""


def headline(summary: Ended) -> str:
    """Return how a run ended, in one line: ``sink finished, 3 records skipped``."""
    name = title(summary.command)
    if summary.result == "ok":
        if unsettled := summary.facts.get("unsettled"):  # of a dry run
            would = f"{count(len(unsettled), 'topic')} would be"
            return f"{name}: dry run, nothing was changed; {would}"
        is_told = name in _TOLD or not is_idle(summary)
        return f"{name} finished" + ("" if is_told else ", nothing new")
    if summary.result == "skipped":
        sentence = skip_sentence(summary.skipped)
        return f"{name} finished, {sentence}" if sentence else f"{name} finished with gaps"
    return f"{name} {summary.result}"


def is_idle(summary: Ended) -> bool:
    """Return whether a run has copied or changed nothing and left nothing out."""
    rows = rows_of(summary)
    counts = [summary.objects, *summary.skipped.values(), *left_out(rows).values()]
    counts += [len(summary.facts.get(name, ())) for name in ("settled", "unsettled", "groups")]
    if summary.result == "ok":  # nobody else has done what the plan says
        counts += [topic.action == "create" for topic in summary.facts.get("plan", ())]
        counts += [told.code == "partitions_added" for told in summary.warnings]
    is_held_up = any(row.held_up is not None for row in rows)
    return summary.records == 0 and not any(counts) and not is_held_up


def has_worked(summary: Ended) -> bool:
    """Return whether a run got far enough for another run to continue it."""
    return summary.result == "stopped" or any(
        row.records or row.state not in _UNTOUCHED for row in rows_of(summary)
    )


def exit_reason(summary: Ended, refused: int = 0) -> str:
    """Return why the exit code is not 0, in one line: the summary's own reason where it has one.

    Empty where it is 0.
    """
    if summary.exit_code == 0:
        return ""
    reason = summary.facts.get("reason") or _reason(summary, refused)
    return f"exit {summary.exit_code}: {escape(reason)}"


def _reason(summary: Ended, refused: int) -> str:
    code, skipped = summary.exit_code, summary.skipped
    if code == 3 and (sentence := skip_sentence(skipped)):
        by_name = {name: n for name, n in skipped.items() if name.endswith("_records")}
        return f"{sentence} ({skips(by_name)})" if by_name else sentence
    if code == REFUSED and refused:
        return f"{count(refused, 'topic')} refused, nothing will run"
    codes = {error.code for error in summary.errors}
    text = _MORE_PRECISE.get(codes.pop()) if len(codes) == 1 else None
    text = text or _MEANING.get(code, "failed")
    return text + (f" ({len(summary.errors)} errors)" if len(summary.errors) > 1 else "")


_WARNINGS: Final = 10
"""How many a mail from cron says."""


class Failures(OutputPart):
    """Prints what failed when the command is over; nothing where nothing did."""

    def __init__(self, stderr: OutputStream, *, has_reason: bool, is_quiet: bool = False) -> None:
        """Choose what is printed.

        Args:
            has_reason: Whether a failure without an error, such as a skip, is explained, by the
                first warnings too: nobody has seen them in the log.
            is_quiet: Whether to print nothing about a lock that another run of the same work
                holds: cron runs overlap.
        """
        self._stderr = stderr
        self._has_reason = has_reason
        self._is_quiet = is_quiet

    def finish(self, summary: Ended) -> None:
        """Print each error in its three parts, or the reason of the exit code."""
        codes = {error.code for error in summary.errors}
        if self._is_quiet and summary.exit_code == LOCKED and codes <= {LockedError.code}:
            return
        for error in summary.errors:
            print_error(self._stderr, error)
        if self._has_reason and not summary.errors and summary.exit_code != 0:
            for warning in summary.warnings[:_WARNINGS]:
                self._stderr.line(f"warning: {warning_text(warning)}")
            if (more := len(summary.warnings) - _WARNINGS) > 0:
                self._stderr.line(f"and {count(more, 'more warning')}, all in --summary-file")
            self._stderr.line(exit_reason(summary))


def print_error(stderr: OutputStream, error: Issue) -> None:
    """Print an error, folded to the width of *stderr*, its first word in red."""
    text = Text(render_error(error, stderr.width))
    text.stylize("bold red", 0, len("error:"))
    stderr.text(text)


_RESULTS: Final = {"missing_object": "MISSING", "unsupported_object": "NOT SUPPORTED"}
"""The words of a finding in the column of results; other codes are written as they are."""

_ABSENT: Final = frozenset({"missing_object", "gap"})
"""Findings about what is not there, so that no object read is bad."""


def verified(
    partitions: Sequence["PartitionVerdict"], findings: Sequence["Finding"]
) -> list[list[str]]:
    """Return what was found, a row a partition and further lines for further findings."""
    rows: list[list[str]] = []
    for row in partitions:
        results = _results(row, [found for found in findings if found.where == row.where])
        numbers = [digits(row.objects), digits(row.records)]
        rows.append([row.where.topic, str(row.where.partition), *numbers, results[0]])
        rows += [["", "", "", "", result] for result in results[1:]]
    placed = {row.where for row in partitions}
    return rows + [
        [found.where.topic, str(found.where.partition), "", "", _found(found)]
        for found in findings
        if found.where not in placed
    ]


def _results(row: "PartitionVerdict", findings: Sequence["Finding"]) -> list[str]:
    """Return the errors of a partition, or its state with what is to be noted."""
    if errors := [_found(found) for found in findings if found.is_error]:
        return errors
    return [", ".join([row.state or "not checkable", *map(_found, findings)])]


def _found(finding: "Finding") -> str:
    """Return a finding: its kind, the object's name, what is wrong, the offsets."""
    name = (finding.key or "").rsplit("/", 1)[-1]
    if not finding.is_error:
        said = finding.text or finding.code.replace("_", " ")
        return f"{name}: {said}" if name and name not in said else said
    kind = _kind(finding.code)
    head = f"{kind} {name}" if name else kind
    if finding.text:
        return f"{head}: {finding.text}"
    return head if finding.offsets is None else head + " (offsets {}-{})".format(*finding.offsets)


def _kind(code: str) -> str:
    return _RESULTS.get(code, code.replace("_", " ").upper())


def verify_count(
    summary: Ended, partitions: Sequence["PartitionVerdict"], findings: Sequence["Finding"]
) -> str:
    """Return the line below the findings: what was read, what is good, what is not."""
    errors = [finding for finding in findings if finding.is_error]
    parts, results = [f"{count(summary.objects, 'object')} listed"], []
    if summary.objects == 0 and any(row.listed for row in partitions):
        parts, results = ["no object read"], ["none is of this part"]
    elif summary.bytes_read:
        parts = [f"{count(summary.objects, 'object')} read", size(summary.bytes_read)]
        damaged = {error.key for error in errors if error.code not in _ABSENT}
        if summary.objects is not None:
            results = [f"{digits(summary.objects - len(damaged))} good"]
    results += [
        f"{digits(number)} {_kind(code).lower()}"
        for code, number in Counter(error.code for error in errors).items()
    ]
    if not errors and summary.errors:
        results.append("not all of it could be checked")
    parts.append(f"in {duration(summary.seconds)}")
    if not results:  # what is missing is known by the ledger
        no_ledger = any(each.code == "no_ledger" for each in summary.warnings)
        results = ["nothing wrong with what is there" if no_ledger else "nothing wrong"]
    return f"{', '.join(parts)}: {', '.join(results)}"


_CHECK_STYLES: Final = {"ok": "green", "warn": "yellow", "fail": "bold red"}

RECORDS: Final = frozenset({"restore cat", "restore query"})
"""Commands that print records or rows, and nothing beside them."""


class Screens(OutputPart):
    """Collects what is to be in a table, and prints it when it is complete."""

    def __init__(self, command: str, stdout: OutputStream, stderr: OutputStream) -> None:
        self._command = command
        self._is_run = is_run(command)
        self._stdout = stdout
        self._stderr = stderr
        self._start: Started | None = None
        self._events: dict[str, list[Any]] = {}
        self._is_plan_shown = False

    def tell(self, event: Plain) -> None:
        """Keep *event* for its table; print what need not wait for others."""
        kind, told = kind_of(event), cast(Any, event)  # whose class nothing here has to import
        match kind:
            case "start":
                self._start = told
            case "check":
                self._print_check(told)
            case "topic_setting":
                before, after = (
                    "the default" if value is None else value for value in (told.before, told.after)
                )
                self._stdout.line(f"{told.topic}: {told.name}  {before} -> {after}")
            case "upload":
                self._stdout.line(f"{told.key}  begun {rfc3339(told.begun)}")
            case "copied":
                self._stdout.line(copied(told))
            case "thaw":
                self._stdout.line(thawing(told))
            case "recipient":
                self._stdout.line(recipient(told))
            case "expire":
                self._stdout.line(expiring(told))
            case "ddl":
                for line in (*told.sql.split("\n"), ""):
                    self._stdout.line(line)
            case "plan" if self._is_run and self._of("plan_topic"):
                self._print_plan()
        if kind not in {"progress", "object"}:
            self._events.setdefault(kind, []).append(event)

    def finish(self, summary: Ended) -> None:
        """Print the tables, the doubts, the errors and the reason of the exit code."""
        planned = () if self._command == "sink plan" else self._of("plan_topic")
        refused = [topic for topic in planned if topic.action == "refuse"]
        refusals, errors = told_once(refused, summary.errors, is_run=self._is_run)
        errors = unchecked(errors, self._of("check"))
        if errors and not self._has_result(summary):
            pass  # the errors say it all
        elif self._command in RECORDS | {"sink ddl"}:
            pass  # the records, or the statements, are the result
        elif self._is_run:
            self._finish_run(summary)
            if followed := summary.facts.get("groups"):
                taken = summary.facts["groups_taken"]
                text = f"{count(len(followed), 'consumer group')} set as of {taken}"
                self._stdout.paragraph(text)
        elif (own := _OWN.get(self._command)) is not None:
            own(self, summary)
        else:
            self._print_tables(summary)
        for refusal in refusals:
            self._stderr.hang("refused: ", sentence(refusal), "bold red")
            self._stderr.text(_more(refusal))
        if not self._is_run:  # a run's warnings were log lines
            every = (*self._of("warning"), *summary.warnings)
            for text in dict.fromkeys(map(warning_text, every)):
                self._stderr.hang("warning: ", text, "yellow")
        for error in errors:
            print_error(self._stderr, error)
        self._print_next(summary)
        if reason := exit_reason(summary, len(refused)):
            self._stderr.paragraph(reason)

    def _of(self, kind: str) -> list[Any]:
        return self._events.get(kind, [])

    def _has_result(self, summary: Ended) -> bool:
        """Return whether there is anything to put into a table."""
        return bool(self._events.keys() - {"start", "warning"} or summary.partitions)

    def _finish_run(self, summary: Ended) -> None:
        if self._of("plan_topic"):
            self._print_plan()
        self._stdout.paragraph(headline(summary))
        if summary.topics and not is_idle(summary):
            tables.run_table(summary).draw(self._stdout)
        elif nothing := emptiness(summary):
            self._stdout.paragraph(nothing)
        facts = [f"run {summary.run}"]
        if summary.seconds is not None:
            facts.append(f"took {duration(summary.seconds)}")
        self._stdout.paragraph("  ".join(facts))
        if summary.facts.get("group") and summary.records:
            self._stdout.paragraph(f"offsets committed to group {summary.facts['group']}")
        if summary.facts.get("by_records") and summary.records:
            self._stdout.paragraph(
                f"copied record by record, not in batches: {summary.facts['by_records']}"
            )
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
        Listing(tables.PLAN, topics).draw(self._stdout)
        self._stdout.text("")
        self._stdout.paragraph(tables.plan_count(topics))
        if planned := self._of("plan_schemas"):
            self._stdout.paragraph(tables.schemas_count(planned))

    def _print_estimate(self, summary: Ended) -> None:
        if text := estimated(summary):
            self._stdout.paragraph(text)
        if readable := summary.facts.get("readable"):
            self._stdout.paragraph(f"S3 makes objects readable {readable} of the request")

    def _print_groups(self, summary: Ended) -> None:
        rows = self._of("group_offset")
        self._draw(tables.TRANSLATED, rows)
        if text := groups_set(summary, {row.group for row in rows} - {""}):
            self._stdout.paragraph(text)
        if "offsets_kept_s" in summary.facts:
            kept_s = summary.facts["offsets_kept_s"]
            kept = "a time that is unknown" if kept_s is None else time_span(kept_s)
            self._stdout.paragraph(f"offsets of a group without members are kept for {kept}")

    def _print_drill(self, summary: Ended) -> None:
        if checked := self._of("drill_report"):
            bad = sum(bool(one.issues) for one in checked)
            found = f"{digits(bad)} of them wrong" if bad else "none of them altered"
            self._draw(tables.REPORTS, checked)
            self._stdout.paragraph(f"{count(len(checked), 'report')}, {found}")
        report: DrillReport | None = summary.facts.get("drill")
        if report is None and self._of("plan_topic"):
            self._print_plan()
            self._print_estimate(summary)
        if report is None:
            return
        self._draw(tables.COMPARED, [row for row in self._of("compared") if row.state != "same"])
        for line in drilled(report, summary):
            self._stdout.paragraph(line)

    def _print_access(self, summary: Ended) -> None:
        new = {"acls": self._of("acl"), "users": self._of("scram_user")}
        self._draw(tables.ACLS, new["acls"])
        self._draw(tables.USERS, new["users"])
        self._draw(tables.BROKER_SETTINGS, self._of("broker_setting"))
        planned = {name: sum(row.action == "add" for row in rows) for name, rows in new.items()}
        done = {name: summary.facts[name] for name in new if name in summary.facts}
        if done or not summary.errors:
            acls, users = (done or planned).values()
            what = f"{count(acls, 'ACL')} and {count(users, 'user')}"
            self._stdout.paragraph(f"{what} {'added' if done else 'would be added'}")

    def _print_tables(self, summary: Ended) -> None:
        found: Sequence[Any] = self._of("partition") or summary.partitions
        partitions = sorted(found, key=lambda row: row.where)
        match self._command:
            case "restore plan":
                self._print_plan()
                self._print_estimate(summary)
            case "sink plan" | "sink repair plan":
                rows = [row for plan in self._of("plan") for row in plan.partitions]
                self._print(tables.SINK_PLAN, rows, tables.sink_plan_count(rows))
                self._print_estimate(summary)
                for line in sink_plan_foot(self._start):
                    self._stdout.paragraph(line)
            case "restore list":
                self._print_topics(partitions)
            case "sink status" | "restore status" if "runs" in summary.facts:
                self._print(tables.STATUS, partitions, count(len(partitions), "partition"))
                runs = summary.facts["runs"]
                self._print(tables.RUNS, runs, count(len(runs), "run"))
                for line in status_foot(summary.facts):
                    self._stdout.paragraph(line)
            case "sink copy" | "sink expire" | "sink abort-uploads":
                feet = {"sink copy": copies, "sink expire": expired}
                self._stdout.paragraph(feet.get(self._command, pruned)(summary))
                self._print_estimate(summary)
            case "keys list" | "keys add" | "keys remove" | "keys rotate":
                self._stdout.paragraph(count(len(self._of("recipient")), "recipient"))
            case "config show":
                settings = self._of("setting")
                self._print(tables.SETTINGS, settings, count(len(settings), "setting"))
            case "plugins":
                plugins = self._of("plugin")
                self._print(tables.PLUGINS, plugins, count(len(plugins), "plugin"))
            case "doctor" | "config check":
                self._stdout.paragraph(checks_count(self._of("check")))
            case _:
                self._stdout.paragraph(headline(summary))
                self._print_estimate(summary)

    def _print_verified(self, summary: Ended) -> None:
        partitions = sorted(self._of("partition"), key=lambda row: row.where)
        findings, compared = self._of("finding"), self._of("compared")
        if findings or partitions or not compared:
            counted = verify_count(summary, partitions, findings)
            self._print(tables.VERIFIED, verified(partitions, findings), counted)
        if compared:
            counted = tables.compared_count(compared, summary.seconds)
            self._print(tables.COMPARED, compared, counted)

    def _print_topics(self, partitions: Sequence["StoredPartition"]) -> None:
        self._print(tables.TOPICS, partitions, tables.topics_count(partitions))
        tables.draw_map(self._of("coverage"), self._stdout)
        for kind, columns in (("schema", tables.NAMED_SCHEMAS), ("group", tables.GROUPS)):
            if found := self._of(kind):
                self._stdout.text("")
                Listing(columns, found).draw(self._stdout)

    def _print(self, columns: Sequence[ListColumn], rows: Sequence[Any], counted: str) -> None:
        """Print a table and its count."""
        self._draw(columns, rows)
        self._stdout.paragraph(counted)

    def _draw(self, columns: Sequence[ListColumn], rows: Sequence[Any]) -> None:
        """Print a table and an empty line; nothing where it has no rows."""
        if rows:
            Listing(columns, rows).draw(self._stdout)
            self._stdout.text("")

    def _print_check(self, check: Check) -> None:
        text = f"{check.area} {check.name}: {check.text}"
        self._stdout.hang(f"{check.level:<5} ", text, _CHECK_STYLES[check.level])
        if check.do:
            self._stdout.hang("      do: ", check.do)

    def _print_next(self, summary: Ended) -> None:
        remaining: Sequence[NextCommand] = summary.facts.get("remaining", ())
        if summary.next and not remaining:
            remaining = [NextCommand("to continue:", summary.next)]
        said = ""
        for each in remaining:
            if each.purpose != said:
                said = each.purpose
                self._stdout.paragraph(said)
            self._stdout.text("\n".join(fold_command(escape(each.command), self._stdout.width)))


_OWN: Final = {
    "restore verify": Screens._print_verified,  # noqa: SLF001
    "restore groups": Screens._print_groups,  # noqa: SLF001
    "restore access": Screens._print_access,  # noqa: SLF001
    "restore drill": Screens._print_drill,  # noqa: SLF001
}
"""What prints the result of commands that have more than a table of partitions."""


def told_once(
    refused: Sequence[TopicPlanned], errors: Sequence[Issue], *, is_run: bool
) -> tuple[list[Issue], list[Issue]]:
    """Return refusals, and the errors that are not among them.

    A plan shows refusals below its table, a run as errors in three parts.  A refused topic without
    an error is shown with its reason.
    """
    said = [] if is_run else [error for error in errors if error.exit_code == REFUSED]
    codes = {error.code for error in errors}
    reasons = [
        Issue(topic.code or "refused", topic.reason or f"{topic.source} cannot be restored")
        for topic in refused
        if topic.code not in codes
    ]
    return said + reasons, [error for error in errors if error not in said]


def unchecked(errors: Sequence[Issue], checks: Sequence[Check]) -> list[Issue]:
    """Return the errors that were not shown as failed checks."""
    failed = [check.issue() for check in checks if check.level == "fail"]
    return [error for error in errors if error not in failed]


def plan_head(start: Started | None, *, is_dry: bool) -> list[str]:
    """Return the lines above a restore plan: from where, to where."""
    lines = ["restore plan (dry run, nothing will be written)" if is_dry else "restore plan"]
    if start is not None:
        lines.append(f"from  {place_of(start.store, start.topics_dir, start.server)}")
        if isinstance(start.own, RestoreStart) and start.own.target:
            cluster = f" (cluster {start.own.cluster_id})" if start.own.cluster_id else ""
            renames = [f"rename {regex} -> {new}" for regex, new in start.own.renames]
            lines.append("   ".join([f"to    {start.own.target}{cluster}", *renames]))
        if isinstance(start.own, RestoreStart) and start.own.window:
            lines.append(f"only  {start.own.window}")
        lines += unnamed(start)
    return lines


def sink_plan_foot(start: Started | None) -> list[str]:
    """Return the lines below a sink's plan."""
    if start is None:
        return []
    return [*unnamed(start), f"positions are kept in group {start.group}"]


def unnamed(start: Started) -> list[str]:
    """Return lines about what a plan does not show: topics left out, variables that choose."""
    said = {
        "left out by topics.exclude": start.excluded,
        "left out, as nobody named them": start.internal,
        "left out, not backed up by then": start.not_yet,
        "left out, of a drill": start.drills,
        "from the environment": start.from_environment,
    }
    return [f"{what}: {some(names)}" for what, names in said.items() if names]


def estimated(summary: Ended) -> str:
    """Return what a run is likely to take; empty where there is nothing to do."""
    found: Estimate | None = summary.facts.get("estimate")
    if found is None:
        return ""
    if found.bytes is None and found.requests is None:
        return "likely to take: unknown before a first run"
    amount = "unknown size" if found.bytes is None else size(found.bytes)
    if found.bytes and found.as_stored:
        amount += f" (up to {100 * found.as_stored // found.bytes}% in batches as stored)"
    took = "unknown time" if found.seconds is None else duration(found.seconds)
    asks = [] if found.requests is None else [f"{count(found.requests, 'request')} to the store"]
    return f"likely to take: {', '.join([amount, *asks, took])}"


def groups_set(summary: Ended, planned: Collection[str]) -> str:
    """Return how many groups were set, or set back; of a dry run how many would be."""
    done = summary.facts.get("groups")
    if done is None:
        is_good = planned and not summary.errors
        return f"{count(len(planned), 'group')} would be set" if is_good else ""
    return f"{count(len(done), 'group')} set{' back' if done and not planned else ''}"


def drilled(report: "DrillReport", summary: Ended) -> list[str]:
    """Return how a drill has ended: what was proved, how long it took, what is left."""
    word = "PASSED" if report.has_passed else "FAILED"
    records, stored = (sum(getattr(one, name) for one in report.topics)
                       for name in ("records", "size_bytes"))  # fmt: skip
    equal = sum(one.is_equal for one in report.groups)
    proved = [
        count(len(report.topics), "topic"), size(stored), f"{count(records, 'record')} equal",
        f"{equal}/{count(len(report.groups), 'group')}",
    ]  # fmt: skip
    rto = f"RTO {spoken(report.rto_s)}"
    if report.rto_whole_s is not None:
        whole = size(summary.facts["whole_bytes"])
        rto += f" (all {whole}: estimated {spoken(report.rto_whole_s)})"
    rpo = "unknown" if report.rpo_s is None else spoken(report.rpo_s)
    deleted = f"{count(summary.facts['deleted'], 'topic')} deleted"
    return [f"drill {report.id} {word}  {', '.join(proved)}", f"{rto}  RPO {rpo}  {deleted}"]


def spoken(seconds: float) -> str:
    """Return a time span in its two largest units: ``6 min 12 s``."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


_AUDITS: Final = {
    "plain": "audit: the target has grown by exactly the records that were written",
    "counted": "audit: the records in the target were counted, no difference",
    "repeated": "audit: the records in the target were counted, none is missing",
    "not made": "audit: not made, the records in the target were not counted",
}
"""The sentence for each way an audit succeeded, or was not made."""

_NAMED: Final = 5
"""Created topics that are named; the plan above has them all."""


def restored(summary: Ended) -> list[str]:
    """Return what to know about the target after a restore: if it had nothing to do, of what."""
    if title(summary.command) != "restore":
        return []
    window = summary.facts.get("window")
    only = [f"restored only: {window}"] if window else []
    if not summary.records:
        return only if summary.exit_code in (0, 3) else []
    audit = _audited(summary)
    created = keeping_all(summary)
    names = ", ".join(created[:_NAMED]) + (", ..." if created[_NAMED:] else "")
    remind = f"created to keep everything until retention.ms is set back: {names}"
    return [
        *only, *as_stored(summary), *([audit] if audit else []), *([remind] if created else [])
    ]  # fmt: skip


def _audited(summary: Ended) -> str | None:
    """Return what the audit has shown; what failed was no part of it."""
    how = summary.facts.get("audit")
    if how is None or any(error.code == "audit" for error in summary.errors):
        return None
    if any(warned.code == "repeated" for warned in summary.warnings):
        how = "repeated"
    is_part = how != "not made" and any("partition" in error.place for error in summary.errors)
    return _AUDITS[how] + (", but for the partitions that failed" if is_part else "")


def as_stored(summary: Ended) -> list[str]:
    """Return how much of what a restore has written it sent in the batches that are stored."""
    size = summary.facts.get("as_stored", 0)
    if not size:
        return []
    share = 100 * size // summary.facts["bytes_written"]
    return [f"{share}% of the bytes went in batches as stored"]


def keeping_all(summary: Ended) -> list[str]:
    """Return the topics that a restore has created, so that they delete nothing."""
    planned: Sequence[TopicPlanned] = summary.facts.get("plan", ())
    return [
        topic.target
        for topic in planned
        if isinstance(topic.own, RestoreTopic) and topic.own.retention_ms == "-1"
    ]


def emptiness(summary: Ended) -> str:
    """Return which topics of a sink without news hold no record at all, and why."""
    if title(summary.command) != "sink":
        return ""
    rows = tables.by_topic(summary)  # a sink's have no target
    found = {name: tables.without_records(summary, name, of) for (name, _), of in rows.items()}
    told = [f"{name} ({why})" for name, why in found.items() if why not in ("", "up to date")]
    more = ", ..." if told[_NAMED:] else ""
    return f"without records: {', '.join(told[:_NAMED])}{more}" if told else ""


def pruned(summary: Ended) -> str:
    """Return what became of unfinished uploads."""
    found, aborted, younger = (
        summary.facts.get(name, 0) for name in ("found", "aborted", "younger")
    )
    done = f"{count(aborted, 'unfinished upload')} aborted"
    if found > aborted:
        done = f"{count(found, 'unfinished upload')} would be aborted"
    return done + (f", {digits(younger)} left alone: too recent" if younger else "")


def recipient(stands: "RecipientState") -> str:
    """Return who can decrypt how much, in one line."""
    since = "" if stands.since is None else f"  since {stands.since}"
    opens = f"opens {digits(stands.opens)} of {count(stands.of, 'data key')}"
    return f"{stands.recipient}  {stands.state}, {opens}{since}"


def copied(topic: "TopicCopied") -> str:
    """Return what became of a topic in a copy."""
    text = f"{topic.topic}: {count(topic.sent, 'object')} new ({size(topic.bytes)})"
    text += f", {digits(topic.there)} there before" if topic.there else ""
    return text + (f", {digits(topic.left)} left" if topic.left else "")


def copies(summary: Ended) -> str:
    """Return what a copy has sent."""
    facts = summary.facts
    of = f"{count(facts.get('sent', 0), 'object')} of {digits(facts.get('found', 0))}"
    done = "would be sent" if facts.get("dry_run") else "sent"
    others = count(facts.get("files", 0), "other file")
    return f"{of} {done} ({size(facts.get('sent_bytes', 0))}), {others}"


def thawing(thawed: "Thawed") -> str:
    """Return how far the archived objects of a topic have come."""
    parts = {
        f"{count(thawed.asked, 'object')} asked for ({size(thawed.bytes)})": thawed.asked,
        f"{digits(thawed.thawing)} being retrieved": thawed.thawing,
        f"{digits(thawed.ready)} can be read": thawed.ready,
    }
    told = [part for part, number in parts.items() if number]
    until = "" if thawed.until is None else f" until {rfc3339(thawed.until)}"
    name = thawed.topic or "the backup's ledger"
    return f"{name}: {', '.join(told) or 'nothing is archived'}{until}"


def expiring(planned: "ExpiryPlanned") -> str:
    """Return what goes of a partition."""
    gone = f", {digits(planned.gone)} of them deleted already" if planned.gone else ""
    before = f" before offset {planned.up_to}{gone}"
    due = "" if planned.due is None else f", until {rfc3339(planned.due)}"
    parts = {
        f"{count(planned.marks, 'object')} to mark ({size(planned.mark_bytes)}){before}":
            planned.marks,
        f"{count(planned.deletes, 'object')} to delete ({size(planned.delete_bytes)})":
            planned.deletes,
        f"{digits(planned.waits)} marked{due}": planned.waits,
        f"{digits(planned.undone)} to keep": planned.undone,
    }  # fmt: skip
    return f"{planned.where}: {', '.join(part for part, number in parts.items() if number)}"


def expired(summary: Ended) -> str:
    """Return what a run that removes objects has done, or would do."""
    facts = summary.facts
    done = {
        f"{count(facts.get('marked', 0), 'object')} marked as removed": facts.get("marked"),
        f"{count(facts.get('deleted', 0), 'object')} deleted "
        f"({size(facts.get('deleted_bytes', 0))})": facts.get("deleted"),
        f"{count(facts.get('undone', 0), 'object')} kept": facts.get("undone"),
    }
    if told := [part for part, number in done.items() if number]:
        return ", ".join(told)
    planned = sum(facts.get(f"planned_{name}", 0) for name in ("marks", "deletes", "undone"))
    if planned:
        return "nothing was done"
    if not facts.get("is_undo"):
        return "nothing to remove"
    is_marked = facts.get("planned_waits")
    why = "all that is marked is gone" if is_marked else "nothing is marked as removed"
    return f"nothing to undo: {why}"


def checks_count(checks: Sequence[Check]) -> str:
    """Return the line below the checks of ``doctor``."""
    levels = [f"{sum(c.level == level for c in checks)} {level}" for level in _CHECK_STYLES]
    return f"{count(len(checks), 'check')}: {', '.join(levels)}"
