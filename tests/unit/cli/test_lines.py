import logging
import threading
import time
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
            row = {"topic": "orders", "partition": 0, "committed": 7, "end": 10, "objects": 1}
            lines.tell({"type": "plan", "partitions": [row | {"start": 0, "committed": 0}]})
            lines.tell({"type": "progress", **row})
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
    rows = [
        {"topic": "orders", "partition": p, "start": 0, "committed": 0, "end": 9} for p in range(3)
    ]
    lines.tell({"type": "plan", "partitions": rows})
    lines.tell({"type": "progress", **rows[1], "committed": 5, "objects": 2})

    with caplog.at_level(logging.INFO, "kbackup.run"):
        lines.say_progress()
        lines.say_progress()

    assert ["orders 1: 5/9 2 objects", "no progress in 3 partitions"] == caplog.messages


def test_a_line_has_an_end() -> None:
    """300 partitions that move do not make a line of 300."""
    rows = [ProgressRow("orders", p, committed=p, end=None) for p in range(300)]

    line = progress_line(rows, 300)

    assert ("orders 0: 0 0 objects", "and 288 more of 300") == (
        line.split(" | ")[0],
        line.split(" | ")[-1],
    )


@pytest.mark.parametrize(
    ("event", "line"),
    [
        pytest.param({}, "sink start", id="nothing"),
        pytest.param(
            {"run": "2026-11-21T02:00:00Z-7f3a", "topics": ["a", "b"], "type": "start"},
            "sink start run=7f3a topics=a,b",
            id="run and topics",
        ),
        pytest.param({"group": "a b"}, 'sink start group="a b"', id="a value with a space"),
        pytest.param({"flush_size": None}, "sink start", id="unknown"),
        pytest.param({"dir": ""}, "sink start dir=", id="empty"),
    ],
)
def test_the_first_line(event: dict[str, Any], line: str) -> None:
    """What is about to be done can be read, and taken apart by programs."""
    assert line == start_line("sink", event)


@pytest.mark.parametrize(
    ("event", "text"),
    [
        pytest.param({"text": "slow"}, "slow", id="no place"),
        pytest.param({"text": "odd name", "key": "a/b"}, "a/b: odd name", id="key"),
        pytest.param({"text": "a/b is odd", "key": "a/b"}, "a/b is odd", id="key in the text"),
        pytest.param(
            {"text": "gap", "topic": "orders", "partition": 0}, "orders 0: gap", id="partition 0"
        ),
        pytest.param({"code": "odd"}, "odd", id="no text"),
    ],
)
def test_a_warning_names_its_place_once(event: dict[str, Any], text: str) -> None:
    """A warning names its topic and partition once, even if its text does too."""
    assert text == warning_text(event)
