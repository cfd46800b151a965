"""``kbackup restore thaw``: ask for archived objects."""

from typing import Any

import click

from kbackup.cli.backup import OpenedBackup
from kbackup.cli.options import GroupedCommand, GroupedOption, config_options
from kbackup.cli.running import Session, run
from kbackup.events import Event


class _Thaw(GroupedCommand):
    examples = (
        "kbackup restore thaw -b my-bucket -t orders --dry-run",
        "kbackup restore thaw -b my-bucket -t orders --days 14 --tier Bulk",
    )


@click.command("thaw", cls=_Thaw)
@click.option(
    "--days", type=click.IntRange(min=1), default=7, show_default=True, metavar="N",
    cls=GroupedOption, group="Restore", help="How many days the objects stay readable.",
)  # fmt: skip
@click.option(
    "--tier", type=click.Choice(["Standard", "Bulk", "Expedited"]), default="Standard",
    show_default=True, cls=GroupedOption, group="Restore",
    help="How fast to retrieve them: Standard within hours, Bulk within two days, Expedited "
        "within minutes.",
)  # fmt: skip
@config_options("thaw")
def thaw_command(days: int, tier: Any, **parameters: Any) -> None:
    """Ask S3 for objects in GLACIER and DEEP_ARCHIVE, so that they can be read for some days.

    This costs money and takes minutes to days.  Run the command again to see the progress; objects
    already requested or readable are not requested again.
    """

    def work(session: Session) -> Event:
        from kbackup.look.thaw import thaw  # noqa: PLC0415

        at = OpenedBackup.of(session, "restore thaw")
        at.tell(
            thaw(
                at.store,
                at.layout,
                at.reading().formats,
                days=days,
                tier=tier,
                only_format=at.only_format,
                is_dry=session.settings.dry_run,
                **at.asked,
            )
        )
        return at.summary.finish()

    run("thaw", "restore thaw", parameters, work)
