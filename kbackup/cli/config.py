"""``kbackup config``: check, show."""

import os
from datetime import UTC, datetime
from typing import Any

import click

from kbackup import config
from kbackup.cli import Family
from kbackup.cli.options import (
    EXIT_CODES,
    GroupedCommand,
    all_options,
    output_options,
    version_option,
)
from kbackup.cli.running import Session, load_output, paths, perform, run
from kbackup.doctor import Check, doubt
from kbackup.events import Event
from kbackup.runs.history import new_run_id
from kbackup.runs.summary import Summary

_HELP = """\
Check a configuration, or show where each value comes from.

\b
Examples:
  kbackup config check --config s3.properties
  kbackup config show --config s3.properties --all
"""


@click.group("config", cls=Family, help=_HELP, epilog=EXIT_CODES)
def command() -> None:
    """Hold the words."""


command.params.append(version_option())


class _Check(GroupedCommand):
    examples = (
        "kbackup config check --config s3.properties",
        "kbackup config check --config common.yaml --config orders.json --json",
    )


class _Show(GroupedCommand):
    examples = (
        "kbackup config show --config s3.properties",
        "kbackup config show --config s3.properties --flush-size 500 -t orders",
        "kbackup config show --all",
    )


@command.command("check", cls=_Check)
@output_options(has_files=True)
def check_command(**parameters: Any) -> None:
    """Read a configuration, from files and variables, and report every problem.

    Exits 0 with or without warnings, 2 with errors.  No connection is made.
    """

    def work(session: Session) -> Event:
        summary = Summary(new_run_id(datetime.now(UTC)), "config check")
        checks = [doubt(found) for found in config.check(paths(parameters), os.environ)]
        for check in checks or [_no_doubt(parameters)]:
            session.tell(check.to_dict())
            if check.level == "fail":
                summary.fail(check.failure())
        return summary.finish()

    perform("config check", load_output("config check", parameters), work)


def _no_doubt(parameters: dict[str, Any]) -> Check:
    names = ", ".join(map(str, paths(parameters))) or "the variables alone"
    return Check("configuration", names, "ok", "no problems found")


@command.command("show", cls=_Show)
@click.option("--all", "is_all", is_flag=True, help="List every property, with its default.")
@all_options("config")
def show_command(is_all: bool, **parameters: Any) -> None:
    """Show every effective value and where it came from; secrets are masked.

    Takes the options of sink and restore, so that you can inspect a command exactly as typed.
    """

    def work(session: Session) -> Event:
        for name, value, origin in session.loaded.shown(all=is_all):
            is_unset = not value and origin == "default"
            session.tell(
                {
                    "type": "setting",
                    "name": name,
                    "value": None if is_unset else value,
                    "origin": origin,
                }
            )
        return Summary(new_run_id(datetime.now(UTC)), "config show").finish()

    run("config", "config show", parameters, work)
