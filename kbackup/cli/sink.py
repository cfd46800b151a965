"""``kbackup sink``: run, plan, status."""

from typing import Any

import click

from kbackup.cli import Family
from kbackup.cli.options import GroupedCommand, config_options
from kbackup.cli.running import Session, java_home, run
from kbackup.summary import Event


@click.group("sink", cls=Family, default="run", invoke_without_command=False)
def command() -> None:
    """Copy Kafka topics to S3."""


class _Run(GroupedCommand):
    siblings = "[run|plan|status]"
    examples = (
        "kbackup sink -k broker:9092 -t orders -b my-bucket",
        "kbackup sink --config quickstart-s3.properties",
        "kbackup sink --config s3.json --follow --rotate-idle-ms 600000",
    )


class _Plan(GroupedCommand):
    examples = ("kbackup sink plan -k broker:9092 -t orders -b my-bucket",)


class _Status(GroupedCommand):
    examples = (
        "kbackup sink status -b my-bucket",
        "kbackup sink status --config s3.properties --max-age 1h --quiet",
    )


@command.command("run", cls=_Run)
@config_options("sink")
def run_command(**parameters: Any) -> None:
    """Copy Kafka topics to S3.

    Starts where the last run stopped and ends at the offsets it sees at the start.
    """
    run("sink", "sink run", parameters, _sink)


@command.command("plan", cls=_Plan)
@config_options("sink")
def plan_command(**parameters: Any) -> None:
    """Say what a run would read and write; nothing is written, and no JVM is started."""
    run("sink", "sink plan", parameters | {"dry_run": True}, _sink)


def _sink(session: Session) -> Event:
    from kbackup.sink.run import SinkRun  # noqa: PLC0415  (imports a Kafka and an S3 client)

    return SinkRun(session.settings, session.tell, session.stop)(java_home)
