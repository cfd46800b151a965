"""``kbackup restore topics``: what is in the bucket, as a table, a map, a tree or a page."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kbackup.cli.backup import OpenedBackup
from kbackup.cli.options import DEEP, GroupedCommand, GroupedOption, config_options
from kbackup.cli.running import Session, run
from kbackup.errors import ConfigurationError, KbackupError
from kbackup.events import Event, Plain, Warned
from kbackup.runs.summary import Summary

if TYPE_CHECKING:
    from kbackup.look.coverage import Coverage
    from kbackup.look.topics import Told


class _Topics(GroupedCommand):
    examples = (
        "kbackup restore topics -b my-bucket",
        "kbackup restore topics orders -b my-bucket --deep",
        "kbackup restore topics orders -b my-bucket --map --html orders.html",
    )


@click.command("topics", cls=_Topics)
@click.argument("topic", required=False)
@click.option(
    "--deep", is_flag=True, cls=GroupedOption, group="Safety",
    help=DEEP,
)  # fmt: skip
@click.option(
    "--map", "has_map", is_flag=True, cls=GroupedOption, group="Output",
    help="Draw which offsets and which days of each partition are stored, and which are missing.",
)  # fmt: skip
@click.option(
    "--html", "page", cls=GroupedOption, group="Output", metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the same as one self-contained HTML page.",
)  # fmt: skip
@click.option(
    "--tree", "has_tree", is_flag=True, cls=GroupedOption, group="Output",
    help="Show the directories that hold each topic's objects.",
)  # fmt: skip
@click.option(
    "--schemas", "has_schemas", is_flag=True, cls=GroupedOption, group="Output",
    help="Show the Schema Registry ids and subjects that the records of each topic name.",
)  # fmt: skip
@click.option(
    "--as-of", cls=GroupedOption, group="Safety", metavar="TIME",
    help="Show only what was stored before this time: RFC 3339, a date, or milliseconds.",
)  # fmt: skip
@config_options("topics")
def topics_command(
    topic: str | None,
    deep: bool,
    has_map: bool,
    page: Path | None,
    has_tree: bool,
    has_schemas: bool,
    as_of: str | None,
    **parameters: Any,
) -> None:
    """Show what is in the bucket: partitions, offsets, sizes; no JVM is started."""
    if topic is not None:
        parameters["topics"] = topic

    def work(session: Session) -> Event:
        from kbackup.look.coverage import Coverage  # noqa: PLC0415
        from kbackup.look.topics import topics  # noqa: PLC0415

        as_of_ms = None if as_of is None else _moment("--as-of", as_of)
        at = OpenedBackup.of(session, "restore topics")
        found = topics(
            at.store,
            at.layout,
            at.reading(),
            only_format=at.only_format,
            deep=deep,
            has_map=has_map or page is not None,
            has_tree=has_tree,
            has_schemas=has_schemas,
            as_of_ms=as_of_ms,
            known=at.known(if_allowed=True),
            **at.asked,
        )
        coverages: list[Coverage] = []
        for each in found:
            if isinstance(each, Coverage):
                coverages.append(each)
            if has_map or not isinstance(each, Coverage):
                at.tell([_entered(at.summary, each)])
        if page is not None:
            moment = as_of_ms if as_of_ms is not None else at.clock.ms()
            place = "/".join(filter(None, [at.place.url.rstrip("/"), at.layout.topics_dir]))
            _write_page(page, place, moment, at.summary, coverages)
        return at.summary.finish()

    run("topics", "restore topics", parameters, work)


def _moment(option: str, text: str) -> int:
    from kbackup.config.parsing import moment  # noqa: PLC0415

    try:
        return moment(text)
    except ValueError as error:
        raise ConfigurationError(f"{option} {text} is not a time", str(error)) from error


def _write_page(
    path: Path, place: str, moment_ms: int, summary: Summary, coverages: "list[Coverage]"
) -> None:
    from kbackup import durable, moments  # noqa: PLC0415
    from kbackup.cli.page import page  # noqa: PLC0415

    moment = moments.text(datetime.fromtimestamp(moment_ms / 1000, UTC))
    text = page(place, moment, summary.partitions, [one.to_dict() for one in coverages])
    try:
        durable.replace_file(path, text.encode())
    except OSError as error:
        raise KbackupError(
            f"{path} cannot be written", error.strerror or str(error), "name another file"
        ) from error


def _entered(summary: Summary, told: "Told") -> Plain:
    """Enter what belongs into the summary, and return what is to be told."""
    from kbackup.look.stored import StoredPartition  # noqa: PLC0415

    if isinstance(told, Warned):
        return summary.warn(told.code, told.text, **told.place)
    if isinstance(told, StoredPartition):
        summary.partitions.append(told.row())
    return told
