import logging
import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from kbackup.cli.progress import (
    Lines,
    ProgressRow,
    ProgressTable,
    progress_line,
    start_line,
    warning_text,
)
from kbackup.events import Planned, SinkStart, Started, Warned
from kbackup.records import TopicPartition
from tests.support.ended import RUN, row
from tests.support.ended import progress as news


def test_lines_come_at_intervals() -> None:
    """Progress lines keep coming at intervals, even without news."""
    seen = threading.Event()

    class Heard(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.getMessage() == "orders 0: 7/10 1 object":
                seen.set()

    log = logging.getLogger("kbackup.run")
    handler, level = Heard(), log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        with Lines("sink run", 0.01) as lines:
            lines.tell(Planned([row(start=0, end=10, committed=0)]))
            lines.tell(news(committed=7, end=10, objects=1))
            is_seen = seen.wait(60)
    finally:
        log.removeHandler(handler)
        log.setLevel(level)

    assert is_seen


def test_the_interval_does_not_delay_the_end() -> None:
    """A short run does not wait for its next progress line."""
    began = time.monotonic()

    with Lines("sink run", 3600):
        pass

    assert time.monotonic() - began < 60


def test_each_line_tells_what_moved(caplog: pytest.LogCaptureFixture) -> None:
    """Partitions without news are left out, and a run without any says so."""
    progress = ProgressTable()
    lines = Lines("sink", 30, progress)
    lines.tell(Planned([row("orders", p, start=0, committed=0, end=9) for p in range(3)]))
    lines.tell(news("orders", 1, committed=5, end=9, objects=2))

    with caplog.at_level(logging.INFO, "kbackup.run"):
        lines.say_progress()
        lines.say_progress()

    assert ["orders 1: 5/9 2 objects", "no progress in 3 partitions"] == caplog.messages


def test_a_line_has_an_end() -> None:
    """300 partitions that move do not make a line of 300."""
    rows = [ProgressRow(TopicPartition("orders", p), committed=p) for p in range(300)]

    line = progress_line(rows, 300)

    assert ("orders 0: 0 0 objects", "and 288 more of 300") == (
        line.split(" | ")[0],
        line.split(" | ")[-1],
    )


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        pytest.param({}, "topics=a,b group=g store=s3://b dir= view=record", id="run"),
        pytest.param(
            {"group": "a b"},
            'topics=a,b group="a b" store=s3://b dir= view=record',
            id="a value with a space",
        ),
    ],
)
def test_the_first_line(fields: dict[str, Any], line: str) -> None:
    """What is about to be done can be read, and taken apart by programs."""
    own = SinkStart(None, "record", None)
    started = Started(RUN, "sink", ["a", "b"], "g", "s3://b", "", own, version="1")

    assert f"sink start run=7f3a {line}" == start_line("sink", replace(started, **fields))


@pytest.mark.parametrize(
    ("warning", "text"),
    [
        pytest.param(Warned("", "slow"), "slow", id="no place"),
        pytest.param(Warned("", "odd name", {"key": "a/b"}), "a/b: odd name", id="key"),
        pytest.param(Warned("", "a/b is odd", {"key": "a/b"}), "a/b is odd", id="key in the text"),
        pytest.param(
            Warned("", "gap", {"topic": "orders", "partition": 0}),
            "orders 0: gap",
            id="partition 0",
        ),
        pytest.param(Warned("odd", ""), "odd", id="no text"),
    ],
)
def test_a_warning_names_its_place_once(warning: Warned, text: str) -> None:
    """A warning names its topic and partition once, even if its text does too."""
    assert text == warning_text(warning)
