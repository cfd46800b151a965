"""``kbackup restore``: run, list, cat, query, verify, drill, status, thaw, and what follows one."""

import json
import logging
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from datetime import datetime
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from kbackup import config
from kbackup.cli import Family
from kbackup.cli.options import (
    DEEP,
    OUTPUT,
    SAMPLE,
    UNDO,
    FileName,
    agree,
    config_options,
    given,
    looking,
    max_age_option,
    option,
    seconds,
    size,
    typed,
    whole_days,
)
from kbackup.cli.running import (
    OpenedBackup,
    Session,
    find_java,
    look,
    refuse,
    report_status,
    run,
    summary_of,
)
from kbackup.config.loading import Loaded
from kbackup.errors import (
    ConfigurationError,
    CorruptObjectError,
    KbackupError,
    RefusedError,
    StoreError,
    counted,
)
from kbackup.stores import READABLE

if TYPE_CHECKING:
    from kbackup.events import Ended, NextCommand, Plain
    from kbackup.inspect.peek import Record
    from kbackup.kafka import KafkaSettings
    from kbackup.records import TopicPartition
    from kbackup.runs.report import Summary
    from kbackup.spark.java import EngineSettings

_TEMPLATE: Final = "%t[%p]@%o %Z %k %h %s\\n"
"""How records are printed where nothing else is asked for."""


# what the environment configures would be restored, all of it, by one word
@click.group(
    "restore",
    cls=Family,
    default="run",
    runs_bare=False,
    aliases={
        "plan": ("run", "--dry-run"),
        "topics": ("list",),
        "peek": ("cat",),
        "settle": ("configs",),
    },
    examples=(
        "kbackup restore -k broker:9092 -b my-bucket -t orders --rename 'copy_of_$0'",
        "kbackup restore --config dr.properties -t orders --dry-run",
    ),
)
def restore_command() -> None:
    """Write backed-up records to Kafka; inspect or verify a backup."""


_html_option: Final = option(
    "--html", "page", group="Output", metavar="FILE", type=FileName(),
    help="Write it as one self-contained HTML page.",
)  # fmt: skip

_rename_groups: Final = option(
    "--rename-groups", group="Restore", metavar="TEMPLATE",
    help="New name of each group, such as 'dr_$0'.",
)  # fmt: skip


def _following(*own: str) -> tuple[str, ...]:
    """Return the options that people use of a command that follows a restore, with its *own*."""
    where = ("--topics-exclude", "--region", "--store-url", *OUTPUT, "-X")
    return ("--config", "-t", "-b", "-k", "--rename", "--rename-prefix", *own, *where)


_COMMON: Final = (
        "--config", "-t", "-b", "-k", "--rename", "--to-time", "--as-of", "--follow", "--dry-run",
        "--rename-prefix", "--if-exists", "--yes", "--from-time", "--topics-exclude",
        "--partitions", "--region", "--store-url", "--behavior-on-error", "--partition-map",
        "--replication-factor", "--group", "--max-bytes-per-second", *OUTPUT,
    )  # fmt: skip


@restore_command.command(
    "run",
    common=_COMMON,
    examples=(
        "kbackup restore -k broker:9092 -b my-bucket -t orders --rename 'copy_of_$0'",
        "kbackup restore --config dr.properties -t orders --to-time 2026-11-21",
        "kbackup restore --config dr.properties --rename-prefix copy_of_ --dry-run",
    ),
)
@config_options("restore")
def run_command(**parameters: Any) -> None:
    """Write backed-up records to Kafka, exactly once.

    Plans first, and refuses what could lose or spoil data before it writes a record.  A restore
    that was stopped or killed continues when the same command is run again.
    """
    words = "restore plan" if parameters.get("dry_run") else "restore run"
    run("restore", words, parameters, _restore)


@restore_command.command(
    "list",
    common=looking("--as-of", "--deep", "--map", "--html", "--schemas", "--consumer-groups"),
    examples=(
        "kbackup restore list -b my-bucket",
        "kbackup restore list orders -b my-bucket --deep",
        "kbackup restore list orders -b my-bucket --map --html orders.html",
        "kbackup restore list orders -b my-bucket --consumer-groups",
    ),
)
@click.argument("topic", required=False)
@option("--deep", is_flag=True, group="Safety", help=DEEP)
@option(
    "--map", "has_map", is_flag=True, group="Output",
    help="Draw each partition's offsets and days.  Shows which are stored, and which missing.",
)  # fmt: skip
@_html_option
@option(
    "--schemas", "has_schemas", is_flag=True, group="Output",
    help="Show the schemas that records name.  With their ids and subjects in the Schema Registry.",
)  # fmt: skip
@option(
    "--consumer-groups", "has_groups", is_flag=True, group="Output",
    help="Show consumer groups' offsets.  As a sink captured them, by --as-of if given.",
)  # fmt: skip
@config_options("list")
def list_command(
    topic: str | None,
    deep: bool,
    has_map: bool,
    page: Path | None,
    has_schemas: bool,
    has_groups: bool,
    **parameters: Any,
) -> None:
    """Show what is in the bucket: partitions, offsets, sizes.  No JVM is started."""
    if topic is not None:
        parameters["topics"] = (*(parameters["topics"] or ()), topic)

    def work(at: OpenedBackup) -> None:
        from kbackup.catalog import groups  # noqa: PLC0415
        from kbackup.cli import page as pages  # noqa: PLC0415
        from kbackup.clock import shown_ms  # noqa: PLC0415
        from kbackup.inspect.topics import PartitionCoverage, StoredPartition, topics  # noqa: PLC0415
        from kbackup.runs import wiring  # noqa: PLC0415

        as_of_ms = at.session.settings.as_of
        wiring.check_as_of(at.session.settings, at.clock.ms())
        known = at.known(if_allowed=True)
        found = topics(
            at.store,
            at.layout,
            at.reading(),
            only_format=at.only_format,
            deep=deep,
            has_map=has_map or page is not None,
            has_directories=at.session.settings.json,
            has_schemas=has_schemas,
            captures=(groups.read(at.store, at.layout, at.clock, as_of_ms) if has_groups else None),
            as_of_ms=as_of_ms,
            known=known,
            asked=at.asked,
        )
        at.tell([] if as_of_ms is not None else at.summary.held_up(at.held_up(known)))
        coverages: list[PartitionCoverage] = []
        stored: list[StoredPartition] = []
        for each in found:
            if isinstance(each, PartitionCoverage):
                coverages.append(each)
            if isinstance(each, StoredPartition):
                stored.append(each)
            if has_map or not isinstance(each, PartitionCoverage):
                at.tell([_entered(at.summary, each)])
        if page is not None:
            moment = shown_ms(as_of_ms if as_of_ms is not None else at.clock.ms())
            text = pages.page(at.session.settings.place, moment, stored, coverages)
            _write(page, text.encode())

    look("list", "restore list", parameters, work)


def _write(path: Path, content: bytes) -> None:
    from kbackup import files  # noqa: PLC0415

    try:
        files.replace_file(path, content)
    except OSError as error:
        raise KbackupError(
            f"{path} cannot be written", error.strerror or str(error), "name another file"
        ) from error


def _entered(summary: "Summary", told: "Plain") -> "Plain":
    """Enter what belongs into the summary, and return what is to be told."""
    from kbackup.events import Warned  # noqa: PLC0415
    from kbackup.inspect.topics import StoredPartition  # noqa: PLC0415

    if isinstance(told, Warned):
        return summary.warn(told.code, told.text, **told.place)
    if isinstance(told, StoredPartition):
        summary.partitions.append(told)
    return told


@restore_command.command(
    "cat",
    common=(
        "--config",
        "-b",
        "-c",
        "--key",
        "--from-time",
        "--to-time",
        "--template",
        "-f",
        "--value-converter",
        "--region",
        "--store-url",
        *OUTPUT,
        "-X",
    ),
    examples=(
        "kbackup restore cat orders:0@4200 -b my-bucket",
        "kbackup restore cat orders -b my-bucket -c 3 --template '%t[%p]@%o %k %s\\n'",
        "kbackup restore cat orders -b my-bucket --key c-42 --from-time 2026-11-21",
    ),
)
@click.argument("what", metavar="PLACE")
@option(
    "-c", "--count", type=click.IntRange(1, 2**31 - 1), default=10,
    group="Output", metavar="N", help="Number of records to print.",
)  # fmt: skip
@option(
    "--template", group="Output", metavar="TEXT",
    help="How to print a record, as kcat does.  %t %p %o %k %s %K %S %h %T \\n, and %Z, the "
        "time in UTC.  Also -f.",
)  # fmt: skip
@option("--key", group="Restore", metavar="TEXT", help="Only records with this key, byte for byte.")
@config_options("cat")
def cat_command(
    what: str, count: int, template: str | None, key: str | None, **parameters: Any
) -> None:
    """Print records of an object, a partition or an offset.

    PLACE is an object's key, or TOPIC[:PARTITION[@OFFSET]].  Options choose among the records by
    key and by time.  No JVM is started.
    """
    if template is None and "%" in str(parameters.get("format_class")):
        template = parameters.pop("format_class")  # kcat's -f; no format has such a name

    def work(at: OpenedBackup) -> None:
        from kbackup.inspect.peek import PeekTarget, peek  # noqa: PLC0415
        from kbackup.naming.renaming import TopicFilter  # noqa: PLC0415
        from kbackup.runs import wiring  # noqa: PLC0415
        from kbackup.runs.backup_state import NOTHING  # noqa: PLC0415

        settings = at.session.settings
        window, place, known = wiring.window(settings), PeekTarget.parse(what, at.layout), NOTHING
        if place.key is None:  # one object is shown as it is
            known = at.known(if_allowed=True, asked=TopicFilter([place.topic]))
        records = peek(
            at.store,
            at.layout,
            at.reading(),
            what,
            count=count,
            only_format=at.only_format,
            window=window,
            key=None if key is None else os.fsencode(key),
            known=known,
        )
        _print(records, None if settings.json else template or _TEMPLATE)

    look("cat", "restore cat", parameters, work)


def _print(records: "Iterable[Record]", template: str | None) -> None:
    """Write records to stdout; a reader that has seen enough ends it quietly."""
    from kbackup.cli.terminal import OutputStream, escape  # noqa: PLC0415  (imports rich)
    from kbackup.inspect.peek import render  # noqa: PLC0415

    out = OutputStream(sys.stdout)
    for record in records:
        if template is None:
            out.write(json.dumps(record) + "\n")
        elif out.isatty():  # a dumb terminal too: it may garble what it cannot obey
            text = render(record, template).decode(errors="backslashreplace")
            # at line feeds only: a value may hold what else Unicode takes for a line's end
            lines = text.removesuffix("\n").split("\n") if text else []
            out.write("".join(escape(line) + "\n" for line in lines))
        else:
            out.write_bytes(render(record, template))
        if out.error is not None:
            raise KbackupError("stdout cannot be written", out.error.strerror or str(out.error))
        if not out.is_open:
            return


_FORMS: Final = ("table", "csv", "json", "parquet")


@restore_command.command(
    "query",
    common=looking("--output", "--output-file", "--master"),
    examples=(
        "kbackup restore query 'select count(*) from orders' -b my-bucket",
        "kbackup restore query 'select * from orders' -b my-bucket --output json",
    ),
)
@click.argument("sql", metavar="SQL")
@option(
    "--output", "form", type=click.Choice(_FORMS), default="table",
    group="Output", help="Format of the result.",
)  # fmt: skip
@option(
    "--output-file", group="Output", metavar="FILE", type=FileName(),
    help="Write the result to this file.  It is replaced as a whole.",
)  # fmt: skip
@config_options("query")
def query_command(sql: str, form: str, output_file: Path | None, **parameters: Any) -> None:
    """Query a backup in SQL; each topic is a table.

    Its columns: topic, partition, offset, timestamp, timestamp_type, key, value, headers.
    Objects that a condition on partition, offset or timestamp rules out are not opened.
    """

    def work(session: Session) -> "Ended":
        return _query(session, sql, "json" if session.settings.json else form, output_file)

    run("query", "restore query", parameters, work)


_COUNT: Final = re.compile(
    r"\s*select\s+count\s*\(\s*\*\s*\)(?:\s+(?:as\s+)?(?P<name>(?!from\b)[a-z_]\w*))?"
    r"\s+from\s+(?:`(?P<quoted>[^`]+)`|(?P<plain>\w+))[\s;]*",
    re.IGNORECASE,
)
"""A query that the ledger may answer alone: to start Spark takes longer than all else of it."""


def _query(session: Session, sql: str, form: str, output_file: Path | None) -> "Ended":
    if form == "parquet" and output_file is None and sys.stdout.isatty():
        raise ConfigurationError(
            "Parquet is not for a terminal", do="name a file with --output-file, or use a pipe"
        )
    from kbackup.runs import wiring  # noqa: PLC0415
    from kbackup.spark import engine  # noqa: PLC0415

    summary, settings = summary_of("restore query"), session.settings
    with ExitStack() as stack:

        @cache
        def begun() -> "tuple[EngineSettings, Callable[[], Any]]":
            given = wiring.engine_settings(settings, find_java())
            return given, stack.enter_context(engine.session(given))

        asked = _COUNT.fullmatch(sql)
        if not asked:
            begun()  # it starts while the backup is listed
        # slow too
        from kbackup.inspect import query  # noqa: PLC0415
        from kbackup.inspect.source import Found  # noqa: PLC0415

        found = Found.read(settings, partial(query.mentioned, sql))
        for topic in found.counted():
            text = (
                f"{topic}: its objects do not store every offset: rows after a hole have offsets "
                "too low"
            )
            session.tell(summary.warn("counted_offsets", text))
        answer = None
        if asked:
            name = asked["name"] or "count(1)"
            answer = query.number_of_rows(asked["quoted"] or asked["plain"], found, name)
        if answer is None:
            answer = query.ask(sql, found, *begun())
    if answer.counted:
        from kbackup.cli.progress import RUN_LOG  # noqa: PLC0415

        records = counted(sum(one.records for one in answer.counted), "record")
        objects = counted(sum(one.objects for one in answer.counted), "object")
        text = f"{records} in {objects}: counted by what the ledger says of them, not read"
        logging.getLogger(RUN_LOG).info(text)
    if found.missing:
        summary.fail(query.incomplete(found.missing))
    if output_file is None:
        _print_rows(answer.rows, form)
    else:
        _write(output_file, query.as_bytes(answer.rows, form))
    return summary.finish()


def _print_rows(answer: Any, form: str) -> None:
    from kbackup.cli.tables import Listing, of_texts  # noqa: PLC0415
    from kbackup.cli.terminal import OutputStream  # noqa: PLC0415
    from kbackup.inspect import query as writing  # noqa: PLC0415

    out = OutputStream(sys.stdout)
    if form == "table":
        cells = [
            ["NULL" if cell is None else cell for cell in row] for row in writing.text_rows(answer)
        ]
        if cells:
            Listing(of_texts(writing.columns(answer)), cells).draw(out)
        out.write(counted(len(cells), "row") + "\n")
    else:
        out.write_bytes(writing.as_bytes(answer, form))
    if out.error is not None:
        raise KbackupError("stdout cannot be written", out.error.strerror or str(out.error))


@restore_command.command(
    "verify",
    common=looking(
        "--deep",
        "--against",
        "-k",
        "--rename",
        "--rename-prefix",
        "--part",
        "--sample",
        "--strict",
        "--master",
    ),
    examples=(
        "kbackup restore verify -b my-bucket",
        "kbackup restore verify --config dr.properties --against target",
        "kbackup restore verify --config s3.properties --deep --part $(date +%u)/7 -q",
    ),
)
@option("--deep", is_flag=True, group="Safety", help=DEEP)
@option(
    "--against", group="Safety", type=click.Choice(["source", "target"]), metavar="SIDE",
    help="Compare with the source or target cluster.  Every record is compared with the topic that "
        "was backed up (source), or with the restored one (target).",
)  # fmt: skip
@option(
    "--part", group="Safety", metavar="I/N",
    help="With --deep: read part I of N.  Together the N parts read every object once.",
)  # fmt: skip
@option(
    "--sample", group="Safety", metavar="P%",
    help=SAMPLE,
)  # fmt: skip
@option(
    "--strict", is_flag=True, group="Safety",
    help="Prove what compaction removed.  With --against source: a record that a compacted topic "
        "lacks must be superseded there by a later one of its key, or be an old tombstone.",
)  # fmt: skip
@option("--rebuild", is_flag=True, hidden=True, group="Safety", help="Now sink reindex.")
@option("--accept-missing", multiple=True, hidden=True, group="Safety", help="Now sink accept.")
@option("--accept-before", hidden=True, group="Safety", help="Now sink accept --before.")
@config_options("verify", "against")
def verify_command(
    deep: bool,
    against: str | None,
    part: str | None,
    sample: str | None,
    strict: bool,
    rebuild: bool,
    accept_missing: tuple[str, ...],
    accept_before: str | None,
    **parameters: Any,
) -> None:
    """Check that a backup is complete and readable, and has no gaps.

    Compares names with the ledger; with --deep, also reads the objects.  What cannot be checked is
    reported as not checkable, never as "ok".  With --against, compares every record with Kafka's;
    for --against target, give the options that the restore was given.
    """

    def work(at: OpenedBackup) -> None:
        from kbackup.verify.run import Acceptance  # noqa: PLC0415
        from kbackup.verify.task import Sample  # noqa: PLC0415

        share = Sample.parse(part, sample, at.summary.run)
        acceptance = Acceptance.parse(accept_missing, accept_before)
        if rebuild:
            at.tell(at.mending().rebuild())
        if acceptance:
            at.tell(at.mending().accept(acceptance))
        is_part = part is not None or sample is not None
        modes = ["part" if is_part else "deep"] if deep or is_part else []
        modes += [] if against is None else [against]
        with _proof(at, modes) if modes else nullcontext():
            if modes != [against]:
                _verify(at, share, deep=deep or is_part)
            if against is not None:
                _compare(at, against, is_strict=strict)

    try:
        _check_sides(parameters, against, is_strict=strict)
    except ConfigurationError as error:
        refuse("restore verify", parameters, error)
    look("verify" if against is None else "against", "restore verify", parameters, work)


@contextmanager
def _proof(at: OpenedBackup, modes: list[str]) -> Iterator[None]:
    """Leave in the bucket how a comparison of records has ended, where that may be written."""
    from kbackup.runs import history  # noqa: PLC0415

    begun = at.clock.now()
    at.summary.facts |= {"modes": modes, **history.selected(at.asked)}
    try:
        yield
    except KbackupError as error:
        if not (error.begins_nothing or isinstance(error, StoreError)):
            at.summary.fail(error)
            _leave_proof(at, begun)
        raise
    _leave_proof(at, begun)


def _leave_proof(at: OpenedBackup, begun: datetime) -> None:
    from kbackup.catalog.findings import PartitionVerdict  # noqa: PLC0415
    from kbackup.clock import rfc3339  # noqa: PLC0415
    from kbackup.config.settings import BY_NAME  # noqa: PLC0415
    from kbackup.runs import history  # noqa: PLC0415

    taken = (BY_NAME[name].commands for name in at.place.options if name in BY_NAME)
    if any("sink" not in commands for commands in taken):  # what it was at a time was verified
        return
    facts, signal = at.summary.facts, at.session.stop.signal
    has_failed = bool(at.summary.exit_code(signal))
    verdicts = [row for row in at.summary.partitions if isinstance(row, PartitionVerdict)]
    if not (has_failed or any(row.objects for row in verdicts)):
        facts["modes"] = [mode for mode in facts["modes"] if mode != "part"]  # it was of nothing
    if not facts["modes"]:  # names alone: those of a cron would hide the proofs
        return
    facts["last_success"] = None if has_failed else rfc3339(begun)
    places = at.layout.prefix(), at.layout.records_prefix()
    try:
        if any(next(iter(at.store.list(place)), None) is not None for place in places):
            said = replace(at.summary.finish(signal), partitions=())
            history.write_run(at.store, at.layout, said)
    except KbackupError as error:
        text = f"no run record was left beside the backup: {error}"
        at.tell([at.summary.warn("no_run_record", text)])


def _check_sides(parameters: Mapping[str, Any], against: str | None, *, is_strict: bool) -> None:
    """Refuse options of a comparison where none is asked for, or one with the other side."""
    from kbackup.config import PROPERTIES  # noqa: PLC0415  (it imports every plugin: not for --help)

    typed_now = given(parameters)
    sides_of: dict[str, tuple[str, ...]] = {"--strict": ("source",)} if is_strict else {}
    for found in PROPERTIES:
        is_given = found.attribute in typed_now and "verify" not in found.commands
        if is_given and "against" in found.commands:
            both = found.group == "Kafka"
            sides_of[found.option_names[0]] = ("source", "target") if both else ("target",)
    for name, sides in sides_of.items():
        if against not in sides:
            raise ConfigurationError(
                f"{name} has no effect here",
                f"it belongs to --against {' or '.join(sides)}",
                f"add that, or leave out {name}",
            )


def _compare(at: OpenedBackup, against: str, *, is_strict: bool) -> None:
    from kbackup.restore.against_target import verify_against_target  # noqa: PLC0415  (imports a Kafka client)
    from kbackup.runs.context import Environment  # noqa: PLC0415
    from kbackup.verify.against_source import verify_against_source  # noqa: PLC0415

    settings, stop = at.session.settings, at.session.stop.event
    environment = Environment.of(settings, find_java)
    if against == "source":
        rows = verify_against_source(
            settings, environment, at.known(), at.summary, stop, is_strict=is_strict
        )
    else:
        rows = verify_against_target(settings, environment, at.summary, stop)
    at.tell(rows)


def _verify(at: OpenedBackup, share: Any, *, deep: bool) -> None:
    from kbackup.catalog import groups, identity, keys  # noqa: PLC0415
    from kbackup.catalog.schemas import SchemaIndex  # noqa: PLC0415
    from kbackup.runs import locks, wiring  # noqa: PLC0415
    from kbackup.verify.run import Notes, on_spark, verify  # noqa: PLC0415

    session, reading = at.session, at.reading()
    has_id = True
    try:
        has_id = bool(identity.read(at.store, at.layout, "").id)
    except CorruptObjectError as error:  # no restore can go on from it
        at.summary.fail(error)
    known, index = at.known(), SchemaIndex.read(at.store, at.layout)
    holders = locks.holders(at.store, at.layout, "sink")
    captures = groups.read(at.store, at.layout, at.clock).damage
    notes = Notes(known, holders, index, at.held_up(known), has_id, captures)
    read = None
    if deep:
        keys.check_readable(at.place)
        engine = wiring.engine_settings(session.settings, None)
        read = on_spark(at.place, reading, engine, find_java, session.stop.event)
    at.tell(
        verify(
            at.store,
            at.layout,
            reading,
            at.summary,
            now=at.clock.now(),
            only_format=at.only_format,
            notes=notes,
            read=read,
            sample=share,
            asked=at.asked,
        )
    )


@restore_command.command(
    "status",
    common=looking("--max-age", "--of-group", "--rename", "--metrics-file", "--metrics-listen"),
    examples=(
        "kbackup restore status -b my-bucket",
        "kbackup restore status --config standby.properties --max-age 10m --quiet",
    ),
)
@max_age_option
@option(
    "--of-group", group="Safety", metavar="NAME",
    help="Only restores that use this consumer group.  Default: the configuration's.",
)  # fmt: skip
@config_options("restore-status")
def status_command(max_age: str | None, of_group: str | None, **parameters: Any) -> None:
    """Report how far a restore has got, and how past ones ended.  No JVM is started.

    Reports on the restore that --config and these options describe, or on the only one there is.
    """

    def work(session: Session) -> "Ended":
        from kbackup.runs.status import RESTORE  # noqa: PLC0415

        return report_status(session, RESTORE, max_age, of_group)

    run("restore-status", "restore status", parameters, work)


@restore_command.command(
    "thaw",
    common=looking("--days", "--tier", "--dry-run"),
    examples=(
        "kbackup restore thaw -b my-bucket -t orders --dry-run",
        "kbackup restore thaw -b my-bucket -t orders --days 14 --tier Bulk",
    ),
)
@option(
    "--days", default="7d", metavar="DAYS",
    group="Restore", help="How many days the objects stay readable.",
)  # fmt: skip
@option(
    "--tier", type=click.Choice([*READABLE]), default="Standard",
    group="Restore",
    help="How fast to retrieve them.  "
        + ", ".join(f"{tier} {when}" for tier, when in READABLE.items()) + ".",
)  # fmt: skip
@config_options("thaw")
def thaw_command(days: str, tier: Any, **parameters: Any) -> None:
    """Ask S3 to make archived objects readable for some days.

    Archived are those in GLACIER and DEEP_ARCHIVE.  This costs money and takes minutes to days.
    Run the command again to see the progress; objects already requested or readable are not
    requested again.
    """

    def work(at: OpenedBackup) -> None:
        from kbackup.inspect.topics import thaw  # noqa: PLC0415

        wanted = whole_days("--days", days)
        at.tell(
            thaw(
                at.store,
                at.layout,
                at.reading().formats,
                summary=at.summary,
                days=wanted,
                tier=tier,
                only_format=at.only_format,
                is_dry=at.session.settings.dry_run,
                asked=at.asked,
                known=at.known(if_allowed=True),
            )
        )

    look("thaw", "restore thaw", parameters, work)


@restore_command.command(
    "access",
    common=_following(
        "--rename-groups", "--acls", "--users", "--passwords", "--as-of", "--dry-run", "--yes",
    ),
    examples=(
        "kbackup restore access --config dr.properties --dry-run",
        "kbackup restore access --config dr.properties --passwords users.txt --yes",
        "kbackup restore access --config dr.properties --rename 'copy_of_$0' --acls",
    ),
)  # fmt: skip
@config_options("access")
@option("--acls", is_flag=True, group="Restore", help="Only ACLs.")
@option("--users", is_flag=True, group="Restore", help="Only SCRAM users.")
@option(
    "--passwords", group="Restore", metavar="FILE", type=FileName(),
    help="The users' passwords, user:password on each line.  Write \\: for a colon in a name; the "
        "file's mode must be 0600.",
)  # fmt: skip
@_rename_groups
def access_command(
    acls: bool,
    users: bool,
    passwords: Path | None,
    rename_groups: str | None,
    **parameters: Any,
) -> None:
    """Add ACLs and SCRAM users of the backed-up cluster.

    A sink captures them with cluster.capture=true.  What is missing is shown, then added, DENY
    before ALLOW; nothing is changed or removed.  Literal ACLs follow --rename; prefixed ones are
    left to you.  Broker settings are only compared.  Quotas and share groups are not captured.
    """
    if acls and not users:
        idle = {"--passwords": passwords is not None}
        _refuse_idle("restore access", parameters, idle, "--acls leaves out users")

    def work(session: Session) -> "Ended":
        from kbackup.restore.access import (  # noqa: PLC0415  (imports a Kafka client)
            AccessOptions,
            AccessRun,
        )

        def steps(at: OpenedBackup, kafka: "KafkaSettings") -> "Iterator[Plain]":
            asked = AccessOptions(acls or not users, users or not acls, passwords, rename_groups)
            return AccessRun(session.settings, kafka, at.store, at.summary, agree())(asked)

        return _reported(session, "restore access", steps)

    run("access", "restore access", parameters, work)


@restore_command.command(
    "configs",
    common=_following("--dry-run", "--yes"),
    examples=(
        "kbackup restore configs --config dr.properties --rename 'copy_of_$0' --dry-run",
        "kbackup restore configs -k broker:9092 -b my-bucket -t orders --yes",
    ),
)
@config_options("configs")
def configs_command(**parameters: Any) -> None:
    """Give restored topics the settings of their originals.

    Retention, compaction and all others.  A restore creates topics that keep every record.  Check
    the records first, then run this: from then on, Kafka deletes what it would have deleted in the
    original topics.
    """

    def work(session: Session) -> "Ended":
        from kbackup.restore.configs import settle  # noqa: PLC0415  (imports a Kafka client)

        def steps(at: OpenedBackup, kafka: "KafkaSettings") -> "Iterator[Plain]":
            cluster = kafka.cluster()
            return settle(session.settings, cluster, at.store, at.clock, at.summary, agree())

        return _reported(session, "restore configs", steps)

    run("configs", "restore configs", parameters, work)


@restore_command.command(
    "groups",
    common=_following(
        "--groups", "--rename-groups", "--as-of", "--to-time", "--by-time", "--dry-run", "--yes",
        "--undo", "--where", "--group",
    ),
    examples=(
        "kbackup restore groups --config dr.properties --rename 'copy_of_$0' --dry-run",
        "kbackup restore groups --config dr.properties billing audit",
        "kbackup restore groups --config dr.properties --undo 5c1e09ab",
    ),
)  # fmt: skip
@config_options("groups")
@_rename_groups
@option(
    "--where", "places", group="Restore", metavar="TOPIC:PARTITION@OFFSET", multiple=True,
    help="Only translate these offsets.  They are the original topics'; no group is set.",
)  # fmt: skip
@option(
    "--by-time", is_flag=True, group="Restore",
    help="Go by time where no exact offset is known.  May repeat or skip some records.",
)  # fmt: skip
@option("--undo", group="Safety", metavar="ID", help=UNDO)
@click.argument("names", metavar="[GROUP]", nargs=-1)
def groups_command(
    names: tuple[str, ...],
    rename_groups: str | None,
    places: tuple[str, ...],
    by_time: bool,
    undo: str | None,
    **parameters: Any,
) -> None:
    """Set consumer groups in restored topics to what they had read.

    Give the options that the restore was given.  Each offset that a sink has captured becomes that
    of the first restored record at or after it; the record there is compared with the backup's.
    All groups are examined before the first is set, and none may have members.
    """
    if undo is not None:
        idle = {**dict.fromkeys(names, True), "--where": bool(places)}
        _refuse_idle("restore groups", parameters, idle, "--undo sets back all groups of a run")

    def work(session: Session) -> "Ended":
        from kbackup.restore.groups import (  # noqa: PLC0415  (imports a Kafka client)
            GroupsOptions,
            GroupsRun,
        )

        def steps(at: OpenedBackup, kafka: "KafkaSettings") -> "Iterator[Plain]":
            settings, wanted = session.settings, [*map(_offset_of, places)]
            groups = GroupsRun(
                settings, kafka, at.store, at.clock, at.summary, agree(), by_time=by_time
            )
            if undo is not None:
                groups.undo(undo)
                return iter(())
            asked = GroupsOptions(names, settings.groups, rename_groups)
            return groups.where(wanted) if wanted else groups.set(asked)

        ended = _reported(session, "restore groups", steps)
        if undo is None and ended.facts.get("groups"):
            line = _line("groups", groups_command, "--undo", ended.facts["undo"])
            ended = ended.saying(remaining=_named([("to set them back:", line)], session.loaded))
        return ended

    run("groups", "restore groups", parameters, work)


@restore_command.command(
    "drill",
    common=(
        "--config", "-t", "-b", "-k", "--sample", "--rto", "--rpo", "--sign", "--check",
        "--html", "--dry-run",
        "--topics-exclude", "--partitions", "--replication-factor", "--max-bytes-per-second",
        "--metrics-file", "--region", "--store-url", *OUTPUT, "-X",
    ),
    examples=(
        "kbackup restore drill --config dr.properties --sample 10GiB --rto 2h --rpo 15m",
        "kbackup restore drill --config dr.properties -t orders --dry-run",
        "kbackup restore drill --config dr.properties --check --public-key drills.pem",
    ),
)  # fmt: skip
@config_options("drill")
@option(
    "--sample", group="Restore", metavar="SIZE",
    help=SAMPLE,
)  # fmt: skip
@option(
    "--rto", group="Safety", metavar="DURATION",
    help="Exit 7 if a recovery takes longer.  With --sample, an estimate for all counts too.",
)  # fmt: skip
@option(
    "--rpo", group="Safety", metavar="DURATION",
    help="Exit 7 if the backup of a partition is older.",
)  # fmt: skip
@option(
    "--sign", group="Output", metavar="KEY", type=FileName(),
    help="Sign the report with this private Ed25519 key.  A PEM file of mode 0600.",
)  # fmt: skip
@option(
    "--check", is_flag=True, group="Output",
    help="Check the reports of past drills instead.  Exit 7 if one was altered or removed.",
)  # fmt: skip
@option(
    "--public-key", group="Output", metavar="FILE", type=FileName(),
    help="With --check: the public key that belongs to --sign.  A PEM file.",
)  # fmt: skip
@_html_option
def drill_command(
    sample: str | None,
    rto: str | None,
    rpo: str | None,
    sign: Path | None,
    check: bool,
    public_key: Path | None,
    page: Path | None,
    **parameters: Any,
) -> None:
    """Rehearse a recovery, and compare every record.

    Restores into topics drill_ID_TOPIC, sets groups drill_ID_GROUP, deletes both, and leaves a
    report in the bucket.  What a killed drill leaves, the next one deletes.
    """
    if check:
        idle = {"--sample": sample, "--rto": rto, "--rpo": rpo, "--sign": sign}
        given_too = {name: value is not None for name, value in idle.items()}
        _refuse_idle("restore drill", parameters, given_too, "--check runs no drill")
    elif public_key is not None:
        why, do = "only --check looks at signatures", "add --check, or leave it out"
        _refuse_idle("restore drill", parameters, {"--public-key": True}, why, do)

    def work(session: Session) -> "Ended":
        from kbackup.catalog import drills  # noqa: PLC0415
        from kbackup.cli.page import drill_page  # noqa: PLC0415
        from kbackup.restore.drill import DrillOptions, DrillRun  # noqa: PLC0415  (imports clients)
        from kbackup.runs.context import Environment  # noqa: PLC0415

        if check:
            return _check_drills(session, public_key, page)
        asked = DrillOptions(
            None if sample is None else size("--sample", sample),
            None if rto is None else seconds("--rto", rto),
            None if rpo is None else seconds("--rpo", rpo),
            None if sign is None else drills.signing_key(sign),
        )
        settings = session.settings
        environment = Environment.of(settings, find_java)
        ended = DrillRun(settings, session.tell, session.stop, environment, asked)()
        if page is not None and (report := ended.facts.get("drill")) is not None:
            _write(page, drill_page(session.settings.place, report).encode())
        if settings.metrics_file is not None and not settings.dry_run:
            from kbackup.events import Warned  # noqa: PLC0415
            from kbackup.runs.status import SINK  # noqa: PLC0415

            try:
                report_status(session, SINK, None)  # of which drills are a part
            except KbackupError as error:
                warned = Warned("no_metrics", str(error), run=ended.run)
                session.tell(warned)
                ended = replace(ended, warnings=(*ended.warnings, warned))
        return ended

    run("drill", "restore drill", parameters, work)


def _refuse_idle(
    words: str, parameters: Mapping[str, Any], idle: Mapping[str, bool], why: str,
    do: str = "leave out one or the other",
) -> None:  # fmt: skip
    """Refuse what is given and has no effect with the other options, before any work begins."""
    found = [name for name, is_given in idle.items() if is_given]
    if found:
        what = f"{', '.join(found)}: without effect here"
        refuse(words, parameters, ConfigurationError(what, why, do))


def _reported(
    session: Session, words: str, steps: "Callable[[OpenedBackup, KafkaSettings], Iterator[Plain]]"
) -> "Ended":
    """Take the steps of a command that follows a restore, and tell of each; return how it ended."""
    from kbackup.runs import wiring  # noqa: PLC0415

    kafka, at = wiring.kafka_settings(session.settings), OpenedBackup.of(session, words)
    try:
        at.tell(steps(at, kafka))
    except KbackupError as error:
        at.summary.fail(error)
    return at.summary.finish()


def _check_drills(session: Session, public_key: Path | None, page: Path | None) -> "Ended":
    """Check the reports that drills have left; what is wrong is exit 7."""
    from kbackup.catalog import drills, identity  # noqa: PLC0415
    from kbackup.cli.page import drill_page  # noqa: PLC0415

    at = OpenedBackup.of(session, "restore drill")
    key = None if public_key is None else drills.checking_key(public_key)
    backup_id = identity.read(at.store, at.layout, "").id
    found = drills.check(at.store, at.layout, backup_id, key=key)
    if not found:
        raise RefusedError(
            "there is no report to check", f"no drill has left one in {session.settings.place}",
            "run one: kbackup restore drill",
        )  # fmt: skip
    at.tell(found)
    for issue in (each for one in found for each in one.issues):
        at.summary.fail(issue)
    newest = next((one.report for one in reversed(found) if one.report is not None), None)
    if page is not None and newest is not None:
        _write(page, drill_page(session.settings.place, newest).encode())
    return at.summary.finish(session.stop.signal)


def _offset_of(text: str) -> "tuple[TopicPartition, int]":
    """Read ``TOPIC:PARTITION@OFFSET``."""
    from kbackup.naming import Place  # noqa: PLC0415
    from kbackup.records import TopicPartition  # noqa: PLC0415  (imports pyarrow)

    place, _, offset = text.rpartition("@")
    try:
        found = Place.parse(f"{place}:{offset}")
    except ValueError:
        why, do = "it is not a topic, a partition and an offset", "write it like orders:3@4711"
        raise ConfigurationError(f"--where {text} cannot be used", why, do) from None
    return TopicPartition(found.topic, found.partition), found.offset


def _restore(session: Session) -> "Ended":
    from kbackup.cli import screens  # noqa: PLC0415  (imports rich)
    from kbackup.restore.run import RestoreRun  # noqa: PLC0415  (imports Kafka and S3 clients)
    from kbackup.runs import wiring  # noqa: PLC0415
    from kbackup.runs.context import Environment  # noqa: PLC0415

    wiring.window(session.settings)  # before Kafka is waited for
    environment = Environment.of(session.settings, find_java)
    ended = RestoreRun(session.settings, session.tell, session.stop, environment, agree())()
    is_done = ended.exit_code in (0, 3) and not session.settings.dry_run
    if is_done and screens.keeping_all(ended):
        configs = _line("configs", configs_command)
        return replace(ended.saying(remaining=_remaining(ended, session.loaded)), next=configs)
    return ended


def _line(name: str, command: click.Command, *more: str) -> str:
    """Return a command of restore that can be pasted, with what was typed for this one."""
    return shlex.join(["kbackup", "restore", name, *more, *typed(command)])


def _remaining(ended: "Ended", loaded: Loaded) -> "list[NextCommand]":
    """Return the commands that remain after a restore that has created topics, in their order."""
    found = [
        (
            "compare what was written with the backup, record by record:",
            _line("verify", verify_command, "--against", "target"),
        ),
        (
            "once they are right, give them their originals' settings:",
            _line("configs", configs_command),
        ),
    ]
    if ended.facts.get("captured"):  # before the settings: it says whose unread records they delete
        purpose = "let its consumer groups continue where they were:"
        found.insert(1, (purpose, _line("groups", groups_command)))
    if ended.facts.get("access"):
        purpose = "let its users and applications in, as ACLs of the original did:"
        found.insert(0, (purpose, _line("access", access_command)))
    if ended.facts.get("unregistered"):
        purpose = "their records name schemas of another registry; --schema-registry-url registers "
        purpose += "these, with a restore into new topics:"
        found.insert(0, (purpose, _line("list", list_command, "--schemas")))
    return _named(found, loaded)


def _named(found: "list[tuple[str, str]]", loaded: Loaded) -> "list[NextCommand]":
    """Return commands with what for; the first one names the variables that they all read."""
    from kbackup.events import NextCommand  # noqa: PLC0415

    printing = {each.name for each in config.PROPERTIES if each.group == "Output"}
    needed = sorted(
        origin.place
        for name, origin in loaded.origins.items()
        if origin.kind == "env" and name not in printing
    )
    if needed:
        purpose, line = found[0]
        found[0] = f"with {', '.join(needed)} set as here, {purpose}", line
    return [NextCommand(purpose, line) for purpose, line in found]
