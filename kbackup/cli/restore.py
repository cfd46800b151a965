"""``kbackup restore``: run, list, cat, query, verify, status, thaw, configs."""

import json
import os
import shlex
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from kbackup.cli import Family
from kbackup.cli.options import (
    DEEP,
    OUTPUT,
    config_options,
    looking,
    max_age_option,
    option,
    typed,
)
from kbackup.cli.running import OpenedBackup, Session, find_jvm, look, report_status, run
from kbackup.errors import ConfigurationError, CorruptObjectError, KbackupError, counted

if TYPE_CHECKING:
    from kbackup.events import Ended, Plain
    from kbackup.inspect.peek import Record
    from kbackup.inspect.topics import PartitionMap, StoredPartition, Told
    from kbackup.runs.report import Summary

_TEMPLATE: Final = "%t[%p]@%o %T %k %h %s\\n"
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
    """Write backed-up records to Kafka, look at a backup, check it."""


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
    help="Draw each partition's offsets and days.  Those stored, and those missing.",
)  # fmt: skip
@option(
    "--html", "page", group="Output", metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the same as one self-contained HTML page.",
)  # fmt: skip
@option(
    "--schemas", "has_schemas", is_flag=True, group="Output",
    help="Show the schemas that records name.  Their ids and subjects in the Schema Registry.",
)  # fmt: skip
@option(
    "--consumer-groups", "has_groups", is_flag=True, group="Output",
    help="Show where consumer groups stood.  As the sink has captured it, by --as-of if given.",
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
        parameters["topics"] = topic

    def work(at: OpenedBackup) -> None:
        from kbackup.catalog import groups  # noqa: PLC0415
        from kbackup.inspect.topics import PartitionMap, StoredPartition, topics  # noqa: PLC0415
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
        coverages: list[PartitionMap] = []
        stored: list[StoredPartition] = []
        for each in found:
            if isinstance(each, PartitionMap):
                coverages.append(each)
            if isinstance(each, StoredPartition):
                stored.append(each)
            if has_map or not isinstance(each, PartitionMap):
                at.tell([_entered(at.summary, each)])
        if page is not None:
            moment = as_of_ms if as_of_ms is not None else at.clock.ms()
            place = "/".join(filter(None, [at.place.url.rstrip("/"), at.layout.topics_dir]))
            _write_page(page, place, moment, stored, coverages)

    look("list", "restore list", parameters, work)


def _write_page(
    path: Path,
    place: str,
    moment_ms: int,
    stored: "list[StoredPartition]",
    coverages: "list[PartitionMap]",
) -> None:
    from kbackup import clock, files  # noqa: PLC0415
    from kbackup.cli.tables import page  # noqa: PLC0415

    moment = clock.rfc3339(datetime.fromtimestamp(moment_ms / 1000, UTC))
    text = page(place, moment, stored, coverages)
    try:
        files.replace_file(path, text.encode())
    except OSError as error:
        raise KbackupError(
            f"{path} cannot be written", error.strerror or str(error), "name another file"
        ) from error


def _entered(summary: "Summary", told: "Told") -> "Plain":
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
    help="How to print a record, as kcat does.  %t %p %o %k %s %K %S %h %T \\n; also -f.",
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
        from kbackup.naming.renaming import Asked  # noqa: PLC0415
        from kbackup.runs import wiring  # noqa: PLC0415
        from kbackup.runs.known import NOTHING  # noqa: PLC0415

        settings = at.session.settings
        window, place, known = wiring.window(settings), PeekTarget.parse(what, at.layout), NOTHING
        if place.key is None:  # one object is shown as it is
            known = at.known(if_allowed=True, asked=Asked([place.topic]))
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
    "--output-file", type=click.Path(path_type=Path, dir_okay=False), group="Output",
    metavar="FILE", help="Write the result to this file.  It is replaced as a whole.",
)  # fmt: skip
@config_options("query")
def query_command(sql: str, form: str, output_file: Path | None, **parameters: Any) -> None:
    """Ask a backup in SQL; each topic is a table.

    Its columns: topic, partition, offset, timestamp, timestamp_type, key, value, headers.
    Objects that a condition on partition, offset or timestamp rules out are not opened.
    """

    def work(session: Session) -> "Ended":
        return _query(session, sql, "json" if session.settings.json else form, output_file)

    run("query", "restore query", parameters, work)


def _query(session: Session, sql: str, form: str, output_file: Path | None) -> "Ended":
    if form == "parquet" and output_file is None and sys.stdout.isatty():
        raise ConfigurationError(
            "Parquet is not for a terminal", do="name a file with --output-file, or use a pipe"
        )
    from kbackup.inspect.query import ask, incomplete, mentioned  # noqa: PLC0415  (imports pyspark)
    from kbackup.inspect.source import Found  # noqa: PLC0415
    from kbackup.runs import wiring  # noqa: PLC0415
    from kbackup.runs.history import new_run_id  # noqa: PLC0415
    from kbackup.runs.report import Summary  # noqa: PLC0415

    summary = Summary(new_run_id(datetime.now(UTC)), "restore query")
    settings = session.settings
    found = Found.read(settings, partial(mentioned, sql))
    for topic in found.counted():
        text = (
            f"{topic}: its objects do not store every offset: rows after a hole have offsets too "
            "low"
        )
        session.tell(summary.warn("counted_offsets", text))
    answer = ask(sql, found, found.topics, wiring.engine_settings(settings, find_jvm()))
    if found.missing:
        summary.fail(incomplete(found.missing))
    if output_file is None:
        _print_rows(answer, form)
    else:
        _write_rows(answer, form, output_file)
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


def _write_rows(answer: Any, form: str, place: Path) -> None:
    from kbackup.files import replace_file  # noqa: PLC0415
    from kbackup.inspect.query import as_bytes  # noqa: PLC0415

    try:
        replace_file(place, as_bytes(answer, form))
    except OSError as error:
        raise KbackupError(f"{place} cannot be written", error.strerror or str(error)) from error


@restore_command.command(
    "verify",
    common=looking("--deep", "--part", "--sample", "--master"),
    examples=(
        "kbackup restore verify -b my-bucket",
        "kbackup restore verify --config s3.properties --deep --part $(date +%u)/7 -q",
    ),
)
@option("--deep", is_flag=True, group="Safety", help=DEEP)
@option(
    "--part", group="Safety", metavar="I/N",
    help="With --deep: read part I of N.  Together the N parts read every object once.",
)  # fmt: skip
@option(
    "--sample", group="Safety", metavar="P%",
    help="With --deep: read a random sample, such as 5%.",
)  # fmt: skip
@option("--rebuild", is_flag=True, hidden=True, group="Safety", help="Now sink reindex.")
@option("--accept-missing", multiple=True, hidden=True, group="Safety", help="Now sink accept.")
@option("--accept-before", hidden=True, group="Safety", help="Now sink accept --before.")
@config_options("verify")
def verify_command(
    deep: bool,
    part: str | None,
    sample: str | None,
    rebuild: bool,
    accept_missing: tuple[str, ...],
    accept_before: str | None,
    **parameters: Any,
) -> None:
    """Check that a backup is complete and readable, and has no gaps.

    Compares names with the ledger; with --deep, also reads the objects.  What cannot be checked is
    reported as not checkable, never as "ok".
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
        _verify(at, share, deep=deep or part is not None or sample is not None)

    look("verify", "restore verify", parameters, work)


def _verify(at: OpenedBackup, share: Any, *, deep: bool) -> None:
    from kbackup.catalog import identity  # noqa: PLC0415
    from kbackup.catalog.schemas import SchemaIndex  # noqa: PLC0415
    from kbackup.runs import locks, wiring  # noqa: PLC0415
    from kbackup.verify.run import Notes, on_spark, verify  # noqa: PLC0415
    from kbackup.verify.task import VerifyJob  # noqa: PLC0415

    session, reading = at.session, at.reading()
    has_id = True
    try:
        has_id = bool(identity.read(at.store, at.layout, "").id)
    except CorruptObjectError as error:  # no restore can go on from it
        at.summary.fail(error)
    known, index = at.known(), SchemaIndex.read(at.store, at.layout)
    holders = locks.holders(at.store, at.layout, "sink")
    notes = Notes(known, holders, index, at.held_up(known), has_id)
    read = None
    if deep:
        engine = wiring.engine_settings(session.settings, find_jvm())
        read = on_spark(VerifyJob(at.place, reading), engine, session.stop.event)
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
    common=looking("--max-age", "--of-group", "--metrics-file", "--metrics-listen"),
    examples=(
        "kbackup restore status -b my-bucket",
        "kbackup restore status --config standby.properties --max-age 10m --quiet",
    ),
)
@max_age_option
@option(
    "--of-group", group="Safety", metavar="NAME",
    help="Only restores with this consumer group.",
)  # fmt: skip
@config_options("status")
def status_command(max_age: str | None, of_group: str | None, **parameters: Any) -> None:
    """Report how far a restore is, and how past ones ended.  No JVM is started."""

    def work(session: Session) -> "Ended":
        from kbackup.runs.status import RESTORE  # noqa: PLC0415

        return report_status(session, RESTORE, max_age, of_group)

    run("status", "restore status", parameters, work)


@restore_command.command(
    "thaw",
    common=looking("--days", "--tier", "--dry-run"),
    examples=(
        "kbackup restore thaw -b my-bucket -t orders --dry-run",
        "kbackup restore thaw -b my-bucket -t orders --days 14 --tier Bulk",
    ),
)
@option(
    "--days", type=click.IntRange(min=1), default=7, metavar="N",
    group="Restore", help="How many days the objects stay readable.",
)  # fmt: skip
@option(
    "--tier", type=click.Choice(["Standard", "Bulk", "Expedited"]), default="Standard",
    group="Restore",
    help="How fast to retrieve them.  Standard within hours, Bulk within two days, Expedited "
        "within minutes.",
)  # fmt: skip
@config_options("thaw")
def thaw_command(days: int, tier: Any, **parameters: Any) -> None:
    """Ask S3 for archived objects, to be readable for some days.

    Archived are those in GLACIER and DEEP_ARCHIVE.  This costs money and takes minutes to days.
    Run the command again to see the progress; objects already requested or readable are not
    requested again.
    """

    def work(at: OpenedBackup) -> None:
        from kbackup.inspect.topics import thaw  # noqa: PLC0415

        at.tell(
            thaw(
                at.store,
                at.layout,
                at.reading().formats,
                days=days,
                tier=tier,
                only_format=at.only_format,
                is_dry=at.session.settings.dry_run,
                asked=at.asked,
            )
        )

    look("thaw", "restore thaw", parameters, work)


@restore_command.command(
    "configs",
    common=(
        "--config",
        "-t",
        "-b",
        "-k",
        "--rename",
        "--rename-prefix",
        "--dry-run",
        "--yes",
        "--topics-exclude",
        "--region",
        "--store-url",
        *OUTPUT,
        "-X",
    ),
    examples=(
        "kbackup restore configs --config dr.properties --rename 'copy_of_$0' --dry-run",
        "kbackup restore configs -k broker:9092 -b my-bucket -t orders --yes",
    ),
)
@config_options("configs")
def configs_command(**parameters: Any) -> None:
    """Give restored topics the settings of their originals.

    Retention, compaction and all others.  A restore creates topics that keep every record.  Check
    them first, then run this: from then on, Kafka deletes what the original topic would have
    deleted.
    """

    def work(session: Session) -> "Ended":
        from kbackup.restore.settle import settle  # noqa: PLC0415  (imports a Kafka client)
        from kbackup.runs.context import Environment  # noqa: PLC0415
        from kbackup.runs.history import new_run_id  # noqa: PLC0415
        from kbackup.runs.report import Summary  # noqa: PLC0415
        from kbackup.stores import open_store  # noqa: PLC0415

        settings, world = session.settings, Environment.of(session.settings, find_jvm)
        summary = Summary(new_run_id(world.clock.now()), "restore configs")
        cluster, store = world.kafka.cluster(), open_store(world.store)
        try:
            for event in settle(settings, cluster, store, world.clock, summary, _agree()):
                session.tell(event)
        except KbackupError as error:
            summary.fail(error)
        return summary.finish()

    run("configs", "restore configs", parameters, work)


def _restore(session: Session) -> "Ended":
    from kbackup.cli import screens  # noqa: PLC0415  (imports rich)
    from kbackup.restore.run import RestoreRun  # noqa: PLC0415  (imports Kafka and S3 clients)
    from kbackup.runs.context import Environment  # noqa: PLC0415

    world = Environment.of(session.settings, find_jvm)
    ended = RestoreRun(session.settings, session.tell, session.stop, world, _agree())()
    is_done = ended.exit_code in (0, 3) and not session.settings.dry_run
    if is_done and screens.keeping_all(ended):
        words = ["kbackup", "restore", "configs", *typed(configs_command)]
        return replace(ended, next=shlex.join(words))
    return ended


def _agree() -> Callable[[str], bool] | None:
    """Return how to ask a person; None where there is none at a terminal."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    return lambda question: click.confirm(question, err=True)
