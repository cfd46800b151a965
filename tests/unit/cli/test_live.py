import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from kbackup.cli.progress import Live, ProgressTable, draw
from kbackup.cli.terminal import OutputStream
from kbackup.events import Planned
from tests.support.ended import progress as news
from tests.support.ended import row
from tests.unit.cli.conftest import Terminal


def progress_of(
    partitions: int, moving: int, topic: str = "orders", **fields: Any
) -> ProgressTable:
    """Return the progress of a run of which the last *moving* partitions move."""
    clock = [0.0]
    progress = ProgressTable(lambda: clock[0])
    rows = [row(topic, p, start=0, end=2_000_000) for p in range(partitions)]
    progress.tell(Planned(rows))
    for second in range(1, 4):
        clock[0] += 1
        for p in range(partitions - moving, partitions):
            done = second * 413_333
            gauges = {"committed": done, "records": done, "objects": second, "open": 113}
            progress.tell(news(topic, p, end=2_000_000, **gauges, **fields))
    return progress


def drawn(
    progress: ProgressTable, width: int, height: int, *, is_restore: bool = False
) -> list[str]:
    console = Console(
        file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=None
    )
    console.print(draw(progress, width, height, is_restore=is_restore))
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined, no-any-return]


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
@pytest.mark.parametrize("height", [3, 6, 24, 50])
@pytest.mark.parametrize("partitions", [1, 4, 300])
@pytest.mark.parametrize("topic", ["orders", "x" * 249, "田" * 40])
def test_it_fits_the_terminal(width: int, height: int, partitions: int, topic: str) -> None:
    """No terminal is too small, no number of partitions too large, no topic's name too long."""
    lines = drawn(progress_of(partitions, 1, topic), width, height)

    assert ([], True) == (
        [line for line in lines if cell_len(line) > width],
        len(lines) <= max(height, 3),
    )


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
def test_numbers_are_whole_or_absent(width: int) -> None:
    """A narrow terminal loses columns, never digits."""
    text = "\n".join(drawn(progress_of(4, 4), width, 24))

    found = set(re.findall("\\d+(?:\u2009\\d+)+", text)) - {"413\u2009371"}
    assert ({"1\u2009239\u2009999", "2\u2009000\u2009000"} if width > 40 else set()) == found


def test_those_that_move_are_shown() -> None:
    """With 300 partitions the screen shows those that are moving and counts the others."""
    lines = drawn(progress_of(300, 5), 100, 24)

    shown = [int(line.split()[1]) for line in lines if line.startswith(" orders")]
    assert ([295, 296, 297, 298, 299], True) == (
        shown[-5:],
        f" and {300 - len(shown)} more, 0 done" in lines,
    )


def test_only_committed_offsets_fill_the_bar() -> None:
    """Records that are read but not committed are counted apart and do not move the bar."""
    progress = progress_of(1, 0)

    progress.tell(news(open=999_999))

    line = next(line for line in drawn(progress, 100, 24) if line.startswith(" orders"))
    assert (["0%"], ["999\u2009999 rec"], 0) == (
        re.findall(r"\d+%", line),
        re.findall("[\\d\u2009]+ rec", line),
        line.count("━"),
    )


def test_what_is_sent_is_unacked() -> None:
    """A restore counts records that were sent and not yet acknowledged."""
    head = drawn(progress_of(1, 1), 100, 24, is_restore=True)[0]

    assert ("unacked" in head, "open" in head) == (True, False)


def test_a_run_that_follows_has_no_percentage() -> None:
    """Without a known end no percentage is shown."""
    progress = ProgressTable()
    progress.tell(news(committed=7))

    assert "%" not in "".join(drawn(progress, 100, 24))


def test_the_start_of_spark_is_told() -> None:
    """Until the first task reports, the display says that Spark is starting."""
    plan = row(start=0, end=10, committed=0)
    with live() as (display, _, file):
        display.tell(Planned([plan]))
        before = file.getvalue()
        display.tell(news(committed=5, end=10))
    after = file.getvalue().removeprefix(before)  # drawn once more before it goes

    assert (True, False) == (
        "starting Spark ..." in before,
        "starting Spark ..." in after.rpartition("orders")[2],
    )


def test_what_needs_no_spark_does_not_speak_of_it() -> None:
    """A run with nothing to do neither starts nor mentions Spark."""
    plan = row(start=10, end=10, committed=10)
    with live() as (display, _, file):
        display.tell(Planned([plan]))

    assert "Spark" not in file.getvalue()


@contextmanager
def live() -> Iterator[tuple[Live, OutputStream, Terminal]]:
    file = Terminal()
    stream = OutputStream(file, {"TERM": "xterm"}, width=100, height=24)
    with Live("sink run", stream) as display:
        yield display, stream, file


def test_log_lines_stand_above_the_display() -> None:
    """A warning does not tear the table."""
    plan = row(start=0, end=10, committed=0)
    with live() as (display, stream, file):
        display.tell(Planned([plan]))
        stream.text("WARN  slow down")

        written = file.getvalue()

    assert (True, True) == (
        written.index("WARN  slow down") < written.rindex("orders"),
        "WARN  slow down\n" in written,
    )


def test_nothing_is_drawn_when_all_is_over() -> None:
    """A late event does not bring the finished display back."""
    with live() as (display, _, file):
        pass

    display.tell(news(committed=7))

    assert "" == file.getvalue()
