"""``kbackup restore verify`` and ``peek``: the commands that look into a backup."""

import json
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from kbackup.cli.backup import OpenedBackup
from kbackup.cli.options import DEEP, GroupedCommand, GroupedOption, config_options
from kbackup.cli.running import Session, find_jvm, run
from kbackup.errors import KbackupError
from kbackup.events import Event

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kbackup.look.kcat import Record

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
        "kbackup restore peek orders -b my-bucket --key customer-42 --from-time 2026-11-21",
    )


@click.command("verify", cls=_Verify)
@click.option(
    "--deep", is_flag=True, cls=GroupedOption, group="Safety",
    help=DEEP,
)  # fmt: skip
@click.option(
    "--part", cls=GroupedOption, group="Safety", metavar="I/N",
    help="With --deep: read part I of N; together the N parts read every object once.",
)  # fmt: skip
@click.option(
    "--sample", cls=GroupedOption, group="Safety", metavar="P%",
    help="With --deep: read a random sample of this percentage of the objects.",
)  # fmt: skip
@click.option(
    "--rebuild", is_flag=True, cls=GroupedOption, group="Safety",
    help="Rebuild the ledger from the objects first.",
)  # fmt: skip
@click.option(
    "--accept-missing", multiple=True, cls=GroupedOption, group="Safety",
    metavar="TOPIC:PARTITION:FIRST-LAST",
    help="Accept that objects missing here were removed on purpose; never report them again.  "
        "Repeatable.",
)  # fmt: skip
@click.option(
    "--accept-before", cls=GroupedOption, group="Safety", metavar="DATE",
    help="Accept the same of missing objects stored before this date, as after a lifecycle rule.",
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
    """Check that a backup is complete and readable, and has no gaps.

    Compares names with the ledger; with --deep, also reads the objects.  What cannot be checked is
    reported as not checkable, never as "ok".
    """

    def work(session: Session) -> Event:
        from kbackup.verify.mending import Acceptance  # noqa: PLC0415
        from kbackup.verify.share import Share  # noqa: PLC0415

        at = OpenedBackup.of(session, "restore verify")
        share = Share.parse(part, sample, at.summary.run)
        acceptance = Acceptance.parse(accept_missing, accept_before)
        _mend(at, acceptance, rebuild=rebuild)
        _verify(at, share, deep=deep or part is not None or sample is not None)
        return at.summary.finish(session.stop.signal)

    run("verify", "restore verify", parameters, work)


def _mend(at: OpenedBackup, acceptance: Any, *, rebuild: bool) -> None:
    from kbackup.verify.mending import Mending  # noqa: PLC0415

    settings = at.session.settings
    mending = Mending(
        at.store,
        at.layout,
        at.reading(),
        at.summary,
        at.clock,
        settings.topics,
        settings.topics_regex,
    )
    if rebuild:
        at.tell(mending.rebuild())
    if acceptance:
        at.tell(mending.accept(acceptance))


def _verify(at: OpenedBackup, share: Any, *, deep: bool) -> None:
    from kbackup.runs import locks, wiring  # noqa: PLC0415
    from kbackup.verify.run import Notes, on_spark, verify  # noqa: PLC0415
    from kbackup.verify.task import VerifyJob  # noqa: PLC0415

    session, reading = at.session, at.reading()
    notes = Notes(at.known(), locks.holders(at.store, at.layout, "sink"))
    read = None
    if deep:
        engine = wiring.engine_settings(session.settings, find_jvm())
        read = on_spark(VerifyJob(at.place, reading), engine, session.tell, session.stop.event)
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
            share=share,
            **at.asked,
        )
    )


@click.command("peek", cls=_Peek)
@click.argument("what", metavar="KEY|TOPIC[:PARTITION[@OFFSET]]")
@click.option(
    "-c", "--count", type=click.IntRange(min=1), default=10, show_default=True,
    cls=GroupedOption, group="Output", metavar="N", help="Number of records to print.",
)  # fmt: skip
@click.option(
    "--template", cls=GroupedOption, group="Output", metavar="TEXT",
    help="How to print a record, in kcat's format: %t %p %o %k %s %K %S %h %T \\n; also -f.",
)  # fmt: skip
@click.option(
    "--key", cls=GroupedOption, group="Restore", metavar="TEXT",
    help="Only records with this key, byte for byte.",
)  # fmt: skip
@config_options("peek")
def peek_command(
    what: str, count: int, template: str | None, key: str | None, **parameters: Any
) -> None:
    """Print records of an object, a partition or an offset; no JVM is started.

    Options choose among them by key and by time.
    """
    if template is None and "%" in str(parameters.get("format_class")):
        template = parameters.pop("format_class")  # kcat's -f; no format has such a name

    def work(session: Session) -> Event:
        from kbackup.look.peek import Wanted, peek  # noqa: PLC0415
        from kbackup.runs import wiring  # noqa: PLC0415
        from kbackup.runs.known import NOTHING  # noqa: PLC0415

        at, settings = OpenedBackup.of(session, "restore peek"), session.settings
        window, known = wiring.window(settings), NOTHING
        if window.has_times:
            topic = Wanted.parse(what, at.layout).topic
            known = at.known(if_allowed=True, topics=(topic,))
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
        _print(records, None if settings.json_ else template or _TEMPLATE)
        return at.summary.finish()

    run("peek", "restore peek", parameters, work)


def _print(records: "Iterable[Record]", template: str | None) -> None:
    """Write records to stdout; a reader that has seen enough ends it quietly."""
    from kbackup.cli.escape import escape  # noqa: PLC0415  (imports rich)
    from kbackup.cli.streams import Stream  # noqa: PLC0415
    from kbackup.look.kcat import render  # noqa: PLC0415

    out = Stream(sys.stdout)
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
