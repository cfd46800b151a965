import io
import json
import logging
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kbackup.cli import output
from kbackup.config import Settings
from kbackup.errors import ConfigurationError, Issue, KbackupError
from kbackup.events import SinkStart, Started, Warned
from kbackup.inspect.topics import StoredPartition
from kbackup.records import TopicPartition
from tests.support.ended import RUN, ended

STARTED = Started(RUN, "sink", [], "", "", "", SinkStart(None, "record", None))
SECRET = "CANARY/secret+value"


def test_quiet_success_is_silent(any_told: Any, show: Any) -> None:
    """Cron sends no mail when all is well, whatever was warned of."""
    shown = show(any_told.command, any_told.events, ended(), quiet=True)

    assert ("", "") == (shown.stdout, shown.stderr)


REFUSED = """\
error: restore would write to the topic it was backed up from (orders, cluster \
5L6g3nShT-eMCtK--X86sw)
  why: the sink run of 02:00 reads orders in the same cluster; each restored record would be \
backed up again
  do:  --rename 'copy_of_$0'   or, if you really mean it, --allow-same-topic
  more: kbackup explain feedback_loop
"""


@pytest.mark.parametrize(
    ("name", "stderr"),
    [
        pytest.param("restore,refused", REFUSED, id="the error, in three parts"),
        pytest.param("sink,skipped", "exit 3: 3 records skipped (3 bad)\n", id="what was skipped"),
        pytest.param("sink,locked", "", id="nothing of a cron job that overlaps itself"),
    ],
)
def test_quiet_says_what_failed_and_nothing_else(
    told: Any, show: Any, name: str, stderr: str
) -> None:
    """Whoever gets the mail reads why the exit code is not 0, as far as that is news."""
    each = told(name)

    shown = show(each.command, each.events, each.ended(), quiet=True, width=200)

    assert ("", stderr) == (shown.stdout, shown.stderr)


def test_quiet_skips_say_why(told: Any, show: Any) -> None:
    """The mail of a run that left records out names the first of each partition, and its reason."""
    each = told("sink,skipped")
    warnings = tuple(Warned("bad_record", f"orders-{n}: no key; left out") for n in range(12))

    shown = show(each.command, each.events, replace(each.ended(), warnings=warnings), quiet=True)

    lines = shown.stderr.splitlines()
    assert [f"warning: orders-{n}: no key; left out" for n in range(10)] == lines[:10]
    assert ["and 2 more warnings, all in --summary-file"] == lines[10:11]
    assert ["exit 3: 3 records skipped (3 bad)"] == lines[11:]


def test_quiet_tells_of_runs_of_other_words_over_the_same_topics(told: Any, show: Any) -> None:
    """Two configurations over one topic are no cron job that overlaps itself: somebody chose so."""
    each = told("sink,locked")
    errors = [{**each.summary["errors"][0], "code": "topics_locked"}]

    shown = show(each.command, [], each.ended(errors=errors), quiet=True)

    assert "another run backs up these topics" in shown.stderr


def test_json_goes_to_stdout_alone(any_told: Any, show: Any) -> None:
    """With --json, stdout holds JSON lines and nothing else, and the summary is the last."""
    shown = show(any_told.command, any_told.events, any_told.ended(), json=True, on_terminal=True)

    printed = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [line["type"] for line in any_told.lines if line["type"] != "plan"] == [
        line["type"] for line in printed
    ]


def test_a_terminal_gets_a_live_display_that_goes(told: Any, show: Any) -> None:
    """Bars are drawn on stderr while the run lasts, and stdout gets the table only."""
    each = told("sink,skipped")

    shown = show(each.command, each.events, each.ended(), on_terminal=True, width=100)

    assert (True, True, False) == (
        "1\u2009240\u2009000 / 2\u2009000\u2009000" in shown.stderr,
        shown.stderr.count("\x1b[2K") > 4,  # lines erased
        "\x1b[2K" in shown.stdout,
    )


def test_a_pipe_gets_lines(told: Any, show: Any) -> None:
    """Without a terminal, a run writes log lines: its start, its warnings, its end."""
    each = told("sink,skipped")

    shown = show(each.command, each.events, each.ended())

    assert [
        (
            "INFO  sink start run=7f3a topics=orders,payments group=connect-s3-sink "
            "store=s3://backups dir=topics format=avro view=record flush_size=10000"
        ),
        "WARN  s3 503 SlowDown on orders+1+0000730000.avro part 1, attempt 2 of 3 in 0.2s",
        (
            "WARN  sink end skipped exit=3 records=6508854 objects=652 stored=1.4GiB skipped=3 "
            "seconds=157.3"
        ),
    ] == [line.partition(" ")[2] for line in shown.stderr.splitlines()[:-1]]
    assert "exit 3: 3 records skipped (3 bad)" == shown.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="tables"),
        pytest.param({"json": True}, id="json"),
        pytest.param({"quiet": True}, id="quiet"),
        pytest.param({"verbose": 2, "debug": True}, id="everything"),
        pytest.param({"log_format": "json"}, id="json log"),
    ],
)
def test_secrets_are_shown_nowhere(show: Any, tmp_path: Path, options: dict[str, Any]) -> None:
    """A secret that a server repeats in its answer stays out of screens, logs and files."""
    log_file, summary_file = tmp_path / "log", tmp_path / "summary"
    why = f"401 for user:{SECRET}@host, signed X-Amz-Signature=0123abc&x=1"
    error = Issue("kafka", f"login {SECRET}", why, exit_code=5)
    events = [STARTED, Warned("x", why)]
    summary = ended(result="failed", exit_code=5, errors=[error], next=f"-X {SECRET}")

    shown = show(
        "sink",
        events,
        summary,
        secrets=[SECRET],
        log_file=str(log_file),
        summary_file=str(summary_file),
        **options,
    )

    everything = shown.stdout + shown.stderr + log_file.read_text() + summary_file.read_text()
    assert (False, False) == (SECRET in everything, "0123abc" in everything)


def test_names_are_data_and_are_not_masked(show: Any) -> None:
    """A password that is also a topic's name does not spoil the JSON contract."""
    row = StoredPartition(TopicPartition("orders", 0), "", 1, 0, 0, 1, 1, None, None)

    shown = show("restore list", [row], ended(), json=True, secrets=["orders"])

    assert "orders" == json.loads(shown.stdout.splitlines()[0])["topic"]


def test_a_reader_that_left_does_not_end_the_run(tmp_path: Path) -> None:
    """``| head -1`` ends without a word, and the run still leaves its summary."""
    summary_file = tmp_path / "summary.json"
    script = f"""
from kbackup.cli import output
from kbackup.config import Settings
from kbackup.events import Ended, Progress
from kbackup.records import TopicPartition
shown = output.choose("sink", Settings(json=True, summary_file={str(summary_file)!r}))
with shown:
    for partition in range(5000):
        shown.tell(Progress("r", TopicPartition("t", partition), None, 0, 0, 0))
shown.finish(Ended("r", "sink", "ok", 0))
"""
    command = f"{sys.executable} -c '{script.replace(chr(39), chr(34))}' | head -1"

    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)

    assert (1, "", "ok") == (
        done.stdout.count("\n"),
        done.stderr,
        json.loads(summary_file.read_text())["result"],
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_output_that_was_lost_is_an_error() -> None:
    """A full disk under stdout is reported, after the run has ended properly."""
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        shown = output.choose("sink", Settings(json=True), stdout=full, stderr=io.StringIO())
        with shown:
            shown.tell(STARTED)

        with pytest.raises(KbackupError, match="stdout cannot be written: No space left"):
            shown.finish(ended())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_log_file_on_a_full_disk_is_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    """It is said once, after the run, and not by a traceback for each line."""
    shown = output.choose(
        "sink",
        Settings(log_file="/dev/full", quiet=True),
        stdout=io.StringIO(),
        stderr=io.StringIO(),
    )
    with shown:
        logging.getLogger("kbackup").warning("odd")

    with pytest.raises(KbackupError, match="log file /dev/full cannot be written: No space left"):
        shown.finish(ended())

    assert "" == capfd.readouterr().err


@pytest.mark.parametrize("option", ["log_file", "summary_file"])
def test_files_are_tried_before_the_work(tmp_path: Path, option: str) -> None:
    """A path that cannot be written ends the command before it has done anything."""
    options: dict[str, Any] = {option: str(tmp_path / "missing" / "file")}
    stderr = io.StringIO()
    shown = output.choose("sink", Settings(**options), stdout=io.StringIO(), stderr=stderr)

    with pytest.raises(ConfigurationError, match=r"file .* cannot be (opened|written)") as caught:
        shown.__enter__()

    error = caught.value.issue()
    shown.finish(ended(result="failed", exit_code=2, errors=[error]))
    assert ("error:", 1) == (stderr.getvalue()[:6], stderr.getvalue().count("error:"))


def test_a_locale_without_unicode_gets_plain_letters() -> None:
    """Tables can be printed where only ASCII can be encoded."""
    stdout = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    shown = output.choose("restore list", Settings(), stdout=stdout, stderr=io.StringIO())
    row = StoredPartition(TopicPartition("t\u00f6pic", 0), "", 1, 0, 0, 1_000_000, 1, None, None)

    with shown:
        shown.tell(row)
    shown.finish(ended())

    stdout.seek(0)
    assert ["t\\xf6pic", "1 000 000"] == re.findall(r"t\\xf6pic|1 000 000", stdout.read())
