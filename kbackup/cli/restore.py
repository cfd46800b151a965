"""``kbackup restore``: run, plan, topics, verify, peek, query, thaw, settle, status."""

import sys
from collections.abc import Callable
from typing import Any

import click

from kbackup.cli import Family
from kbackup.cli.inspect import peek_command, thaw_command, topics_command, verify_command
from kbackup.cli.options import (
    GroupedCommand,
    GroupedOption,
    config_options,
    max_age_option,
    seconds,
)
from kbackup.cli.query import query_command
from kbackup.cli.running import OpenedBackup, Session, find_jvm, run
from kbackup.errors import KbackupError
from kbackup.events import Event
from kbackup.runs.summary import Summary


@click.group("restore", cls=Family, default="run")
def command() -> None:
    """Write backed-up records to Kafka, and look at a backup."""


class _Run(GroupedCommand):
    siblings = "[run|plan|topics|verify|peek|query|thaw|settle|status]"
    examples = (
        "kbackup restore -k broker:9092 -b my-bucket --rename 'copy_of_$0'",
        "kbackup restore --config s3.properties --rename 'copy_of_$0' -t orders",
    )


class _Plan(GroupedCommand):
    examples = ("kbackup restore plan -k broker:9092 -b my-bucket --rename 'copy_of_$0'",)


@command.command("run", cls=_Run)
@config_options("restore")
def run_command(**parameters: Any) -> None:
    """Write backed-up records to Kafka, exactly once.

    Plans first, and refuses what could lose or spoil data before it writes a record.  A restore
    that was stopped or killed continues when the same command is run again.
    """
    words = "restore plan" if parameters.get("dry_run") else "restore run"
    run("restore", words, parameters, _restore)


@command.command("plan", cls=_Plan)
@config_options("restore")
def plan_command(**parameters: Any) -> None:
    """Show which objects would go to which topics, and what prevents it; nothing is written."""
    run("restore", "restore plan", parameters | {"dry_run": True}, _restore)


class _Settle(GroupedCommand):
    examples = (
        "kbackup restore settle -k broker:9092 -b my-bucket --rename 'copy_of_$0' --dry-run",
        "kbackup restore settle -k broker:9092 -b my-bucket -t orders --yes",
    )


@command.command("settle", cls=_Settle)
@config_options("settle")
def settle_command(**parameters: Any) -> None:
    """Give restored topics the settings of their originals: retention, compaction and all others.

    A restore creates topics that keep every record.  Check them first, then settle them: from then
    on, Kafka deletes what the original topic would have deleted.
    """

    def work(session: Session) -> Event:
        from kbackup.restore.settle import settle  # noqa: PLC0415  (imports a Kafka client)
        from kbackup.runs.environment import Environment  # noqa: PLC0415
        from kbackup.runs.history import new_run_id  # noqa: PLC0415
        from kbackup.stores import open_store  # noqa: PLC0415

        settings, world = session.settings, Environment.of(session.settings, find_jvm)
        summary = Summary(new_run_id(world.clock.now()), "restore settle")
        cluster, store = world.kafka.cluster(), open_store(world.store)
        try:
            for event in settle(settings, cluster, store, world.clock, summary, _agree()):
                session.tell(event)
        except KbackupError as error:
            summary.fail(error)
        return summary.finish()

    run("settle", "restore settle", parameters, work)


class _Status(GroupedCommand):
    examples = (
        "kbackup restore status -b my-bucket",
        "kbackup restore status --config standby.properties --max-age 10m --quiet",
    )


@command.command("status", cls=_Status)
@max_age_option
@click.option(
    "--of-group", cls=GroupedOption, group="Safety", metavar="NAME",
    help="Only restores that keep their position in this consumer group.",
)  # fmt: skip
@config_options("status")
def status_command(max_age: str | None, of_group: str | None, **parameters: Any) -> None:
    """Report how far a restore that follows is, and how past ones ended; no JVM is started."""

    def work(session: Session) -> Event:
        from kbackup.runs import status  # noqa: PLC0415

        oldest = None if max_age is None else seconds("--max-age", max_age)
        at = OpenedBackup.of(session, "restore status")
        return status.status(
            at.store, at.layout, max_age_s=oldest, now=at.clock.now(), of=status.RESTORE,
            group=of_group, **at.asked,
        )  # fmt: skip

    run("status", "restore status", parameters, work)


def _restore(session: Session) -> Event:
    from kbackup.restore.run import RestoreRun  # noqa: PLC0415  (imports Kafka and S3 clients)
    from kbackup.runs.environment import Environment  # noqa: PLC0415

    world = Environment.of(session.settings, find_jvm)
    return RestoreRun(session.settings, session.tell, session.stop, world, _agree())()


def _agree() -> Callable[[str], bool] | None:
    """Return how to ask a person; None where there is none at a terminal."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    return lambda question: click.confirm(question, err=True)


command.add_command(topics_command)
command.add_command(verify_command)
command.add_command(peek_command)
command.add_command(query_command)
command.add_command(thaw_command)
