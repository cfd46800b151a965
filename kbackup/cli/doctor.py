"""``kbackup doctor``."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import click

from kbackup.cli.options import GroupedCommand, GroupedOption, all_options
from kbackup.cli.running import Session, load, load_output, perform
from kbackup.errors import ConfigurationError
from kbackup.events import Event
from kbackup.runs.history import new_run_id
from kbackup.runs.summary import Summary


class _Doctor(GroupedCommand):
    examples = (
        "kbackup doctor -k broker:9092 -t orders -b my-bucket",
        "kbackup doctor --config s3.properties --write-probe",
        "kbackup doctor --config s3.properties --no-spark --quiet",
    )


@click.command("doctor", cls=_Doctor)
@click.option(
    "--write-probe", is_flag=True, cls=GroupedOption, group="S3",
    help="Put, upload in parts, try conditions, abort and delete a probe object under _kbackup/.",
)  # fmt: skip
@click.option(
    "--spark/--no-spark", "starts", default=True, cls=GroupedOption, group="Spark",
    help="Start Spark and run a trial task, which takes some seconds. [default: spark]",
)  # fmt: skip
@all_options("doctor")
def command(write_probe: bool, starts: bool, **parameters: Any) -> None:
    """Check what a run needs before it is needed: configuration, disk, S3, Kafka, Java and Spark.

    Prints one line for each check, with what to do.  Takes the options of sink and restore, so that
    you can check a command exactly as typed.  Exits 0, or with the code of the area that failed.
    """
    from kbackup.doctor import doubts  # noqa: PLC0415  (not needed for --help)

    try:
        loaded = load("doctor", parameters)
        found = list(loaded.warnings)
    except ConfigurationError as error:
        found = doubts(error)
        loaded = load_output("doctor", parameters)

    def work(session: Session) -> Event:
        from kbackup.doctor.examination import examine  # noqa: PLC0415  (imports all clients)
        from kbackup.local.java import find_java  # noqa: PLC0415

        summary = Summary(new_run_id(datetime.now(UTC)), "doctor")
        for check in examine(
            session.settings,
            found,
            find_java,
            writes=write_probe,
            starts=starts,
            stop=session.stop.event,
        ):
            session.tell(check.to_dict())
            if check.level == "fail":
                summary.fail(check.failure())
        return summary.finish(session.stop.signal)

    perform("doctor", replace(loaded, warnings=()), work)
