"""``kbackup restore query``: a question to a backup, in SQL."""

import sys
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from kbackup.cli.options import GroupedCommand, GroupedOption, config_options
from kbackup.cli.running import Session, find_jvm, run
from kbackup.errors import ConfigurationError, KbackupError, counted
from kbackup.events import Event
from kbackup.runs.summary import Summary

_FORMS: Final = ("table", "csv", "json", "parquet")


class _Query(GroupedCommand):
    examples = (
        "kbackup restore query 'select count(*) from orders' -b my-bucket",
        "kbackup restore query 'select * from orders limit 9' -b my-bucket --output json",
    )


@click.command("query", cls=_Query)
@click.argument("sql", metavar="SQL")
@click.option(
    "--output", "form", type=click.Choice(_FORMS), default="table", show_default=True,
    cls=GroupedOption, group="Output", help="Format of the result.",
)  # fmt: skip
@click.option(
    "--output-file", type=click.Path(path_type=Path, dir_okay=False), cls=GroupedOption,
    group="Output", metavar="FILE", help="Write the result to this file, whole or not at all.",
)  # fmt: skip
@config_options("query")
def query_command(sql: str, form: str, output_file: Path | None, **parameters: Any) -> None:
    """Ask a backup in SQL; each topic is a table.

    Its columns: topic, partition, offset, timestamp, timestamp_type, key, value, headers.
    Objects that a condition on partition, offset or timestamp rules out are not opened.
    """

    def work(session: Session) -> Event:
        return _query(session, sql, "json" if session.settings.json_ else form, output_file)

    run("query", "restore query", parameters, work)


def _query(session: Session, sql: str, form: str, output_file: Path | None) -> Event:
    if form == "parquet" and output_file is None and sys.stdout.isatty():
        raise ConfigurationError(
            "Parquet is not for a terminal", do="name a file with --output-file, or use a pipe"
        )
    from kbackup.inspect.query import ask, incomplete, mentioned  # noqa: PLC0415  (imports pyspark)
    from kbackup.inspect.source import Found  # noqa: PLC0415
    from kbackup.runs import wiring  # noqa: PLC0415
    from kbackup.runs.history import new_run_id  # noqa: PLC0415

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
        _print(answer, form)
    else:
        _write(answer, form, output_file)
    return summary.finish()


def _print(answer: Any, form: str) -> None:
    from kbackup.cli.grid import Grid, GridColumn  # noqa: PLC0415
    from kbackup.cli.streams import OutputStream  # noqa: PLC0415
    from kbackup.inspect import query as writing  # noqa: PLC0415

    out = OutputStream(sys.stdout)
    if form == "table":
        cells = [
            ["NULL" if cell is None else cell for cell in row] for row in writing.text_rows(answer)
        ]
        columns = [
            GridColumn(name, "right" if is_number else "left", 0 if is_number else 8)
            for name, is_number in writing.columns(answer).items()
        ]
        if cells:
            Grid(columns, cells).draw(out)
        out.write(counted(len(cells), "row") + "\n")
    else:
        out.write_bytes(writing.as_bytes(answer, form))
    if out.error is not None:
        raise KbackupError("stdout cannot be written", out.error.strerror or str(out.error))


def _write(answer: Any, form: str, place: Path) -> None:
    from kbackup.files import replace_file  # noqa: PLC0415
    from kbackup.inspect.query import as_bytes  # noqa: PLC0415

    try:
        replace_file(place, as_bytes(answer, form))
    except OSError as error:
        raise KbackupError(f"{place} cannot be written", error.strerror or str(error)) from error
