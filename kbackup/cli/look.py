"""``kbackup restore verify`` and ``peek``: the commands that look into a backup."""

import json
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import click

from kbackup.cli.options import DEEP, GroupedCommand, GroupedOption, config_options
from kbackup.cli.running import Session, find_jvm, run
from kbackup.clock import SystemClock
from kbackup.errors import KbackupError
from kbackup.runs.summary import Event, Summary

_TEMPLATE = "%t[%p]@%o %T %k %h %s\\n"
"""How records are printed where nothing else is asked for."""


class _Verify(GroupedCommand):
    examples = (
        "kbackup restore verify -b my-bucket",
        "kbackup restore verify --config s3.properties --deep --part $(date +%u)/7 --quiet",
    )


class _Peek(GroupedCommand):
    examples = (
        "kbackup restore peek orders:0@4200 -b my-bucket",
        "kbackup restore peek orders -b my-bucket -c 3 --template '%t[%p]@%o %k %s\\n'",
    )


@click.command("verify", cls=_Verify)
@click.option(
    "--deep", is_flag=True, cls=GroupedOption, group="Safety",
    help=DEEP,
)  # fmt: skip
@click.option(
    "--part", cls=GroupedOption, group="Safety", metavar="I/N",
    help="With --deep: read one part of N; all parts together read every object once.",
)  # fmt: skip
@click.option(
    "--sample", cls=GroupedOption, group="Safety", metavar="P%",
    help="With --deep: read this percentage of the objects, chosen anew each time.",
)  # fmt: skip
@click.option(
    "--rebuild", is_flag=True, cls=GroupedOption, group="Safety",
    help="First rebuild the ledger from the objects.",
)  # fmt: skip
@click.option(
    "--accept-missing", multiple=True, cls=GroupedOption, group="Safety",
    metavar="TOPIC:PARTITION:FIRST-LAST",
    help="Objects missing there were removed on purpose: do not miss them again.  Repeatable.",
)  # fmt: skip
@click.option(
    "--accept-before", cls=GroupedOption, group="Safety", metavar="DATE",
    help="The same for missing objects that were stored before, as by a lifecycle rule.",
)  # fmt: skip
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
    """Check that a backup is complete, readable and without gaps.

    Compares names with the ledger; with --deep, reads the objects.  What cannot be checked is
    reported as such, never as "ok".
    """

    def work(session: Session) -> Event:
        from kbackup.verify.mending import Acceptance  # noqa: PLC0415
        from kbackup.verify.share import Share  # noqa: PLC0415

        summary = _summary("restore verify")
        share = Share.parse(part, sample, summary.run)
        acceptance = Acceptance.parse(accept_missing, accept_before)
        _mend(session, summary, acceptance, rebuild=rebuild)
        _verify(session, summary, share, deep=deep or part is not None or sample is not None)
        return summary.finish(session.stop.signal)

    run("verify", "restore verify", parameters, work)


def _mend(session: Session, summary: Summary, acceptance: Any, *, rebuild: bool) -> None:
    from kbackup.runs import wiring  # noqa: PLC0415
    from kbackup.stores import open_store  # noqa: PLC0415
    from kbackup.verify.mending import Mending  # noqa: PLC0415

    settings = session.settings
    mending = Mending(
        open_store(wiring.store_settings(settings)),
        wiring.layout(settings),
        wiring.reading(settings),
        summary,
        SystemClock(),
        settings.topics,
        settings.topics_regex,
    )
    if rebuild:
        for event in mending.rebuild():
            session.tell(event)
    if acceptance:
        for event in mending.accept(acceptance):
            session.tell(event)


def _verify(session: Session, summary: Summary, share: Any, *, deep: bool) -> None:
    from kbackup.runs import known, locks, wiring  # noqa: PLC0415
    from kbackup.stores import open_store  # noqa: PLC0415
    from kbackup.verify.run import Notes, on_spark, verify  # noqa: PLC0415
    from kbackup.verify.task import VerifyJob  # noqa: PLC0415

    settings, clock = session.settings, SystemClock()
    store = open_store(wiring.store_settings(settings))
    layout = wiring.layout(settings)
    said = known.read(store, layout, clock, settings.topics, settings.topics_regex)
    notes = Notes(said, locks.holders(store, layout, "sink"))
    read = None
    if deep:
        job = VerifyJob(wiring.store_settings(settings), wiring.reading(settings))
        engine = wiring.engine_settings(settings, find_jvm())
        read = on_spark(job, engine, session.tell, session.stop.event)
    events = verify(
        store,
        layout,
        wiring.reading(settings),
        summary,
        now=clock.now(),
        names=settings.topics,
        pattern=settings.topics_regex,
        partitions=settings.partitions,
        only_format=settings.format_class,
        notes=notes,
        read=read,
        share=share,
    )
    for event in events:
        session.tell(event)


@click.command("peek", cls=_Peek)
@click.argument("what", metavar="KEY|TOPIC[:PARTITION[@OFFSET]]")
@click.option(
    "-c", "--count", type=click.IntRange(min=1), default=10, show_default=True,
    cls=GroupedOption, group="Output", metavar="N", help="Number of records to print.",
)  # fmt: skip
@click.option(
    "--template", cls=GroupedOption, group="Output", metavar="TEXT",
    help="How to print a record, in kcat's words: %t %p %o %k %s %K %S %h %T \\n; also -f.",
)  # fmt: skip
@config_options("peek")
def peek_command(what: str, count: int, template: str | None, **parameters: Any) -> None:
    """Print records of an object, a partition or an offset; no JVM is started."""
    if template is None and "%" in str(parameters.get("format_class")):
        template = parameters.pop("format_class")  # what kcat's -f means; no format is named so

    def work(session: Session) -> Event:
        from kbackup.look.peek import peek  # noqa: PLC0415
        from kbackup.runs import wiring  # noqa: PLC0415
        from kbackup.stores import open_store  # noqa: PLC0415

        settings = session.settings
        store = open_store(wiring.store_settings(settings))
        records = peek(
            store,
            wiring.layout(settings),
            wiring.reading(settings),
            what,
            count=count,
            only_format=settings.format_class,
        )
        _print(records, None if settings.json_ else template or _TEMPLATE)
        return _summary("restore peek").finish()

    run("peek", "restore peek", parameters, work)


def _print(records: Iterable[Event], template: str | None) -> None:
    """Write records to stdout; a reader that has seen enough ends it quietly."""
    from kbackup.cli.escape import escape  # noqa: PLC0415  (imports rich)
    from kbackup.cli.streams import Stream  # noqa: PLC0415
    from kbackup.look.kcat import render  # noqa: PLC0415

    out = Stream(sys.stdout)
    for record in records:
        if template is None:
            out.write(json.dumps(record) + "\n")
        elif out.isatty():  # a dumb one too: what it cannot obey it may still show as a mess
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


def _summary(command: str) -> Summary:
    from kbackup.runs.history import new_run_id  # noqa: PLC0415

    return Summary(new_run_id(datetime.now(UTC)), command)
