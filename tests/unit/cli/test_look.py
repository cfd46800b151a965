"""The commands that look, as they are typed."""

import socket
import sys
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from backup_samples import JSON, TIME, Backup, batch
from click.testing import CliRunner

from kbackup.catalog import identity
from kbackup.cli import root
from kbackup.cli.running import perform
from kbackup.config import loading
from kbackup.events import Ended
from kbackup.naming import Layout
from kbackup.runs import history, wiring
from kbackup.stores import StoreSettings, open_store
from tests.support.ended import ended, row
from tests.support.invoked import invoke, run
from tests.unit.cli.conftest import Terminal


def test_too_little_memory_is_no_defect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that gets no memory says so, and what to do: exit 1."""

    def asked(*_: object) -> None:
        raise pa.ArrowMemoryError("malloc of size 4096 failed")

    monkeypatch.setattr(Layout, "prefix", asked)

    ended = run(tmp_path, "restore list")

    (error,) = ended.summary["errors"]
    assert (1, "no_memory") == (ended.code, error["code"])
    assert "kbackup restore list ran out of memory" == error["what"]
    assert error["why"].endswith("has too little: malloc of size 4096 failed")
    assert "give it more" == error["do"]


def test_a_summary_that_cannot_be_shown_is_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    """What a run has come to stays its exit code; a good one is 1 then."""
    loaded = loading.load("config", options={}, files=[], environ={})

    for code, expected in ((0, 1), (7, 7)):
        strange = Ended("r", "restore status", "ok", code, facts={"runs": 5})
        with pytest.raises(SystemExit) as left:
            perform("restore status", loaded, lambda _, it=strange: it)  # type: ignore[misc]

        assert expected == left.value.code
        assert "error: output failed: TypeError" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--template", "-f"])
def test_peek_leaves_bytes_alone_in_a_pipe(option: str, tmp_path: Path) -> None:
    """Binary keys, payloads and headers reach a pipe unchanged."""
    backup = Backup.in_folder(tmp_path)
    headers = [{"key": "trace", "value": b"\xff"}]
    backup.put("orders", 0, batch([7], key=b"\xfe", value=b"\xff\xc3\xa9", headers=headers))
    words = ["restore", "cat", "orders:0@7", "--store-url", f"file://{tmp_path}"]

    result = CliRunner().invoke(root, [*words, option, "%k|%s|%h"], prog_name="kbackup")

    assert (0, b"\xfe|\xff\xc3\xa9|trace=\xff") == (result.exit_code, result.stdout_bytes)


def test_peek_narrows_to_a_format(tmp_path: Path) -> None:
    """Where values and full records cover the same offsets, the format that is named is shown."""
    backup = Backup.in_folder(tmp_path)
    backup.put("orders", 0, batch([7], value=b'{"from": "json"}'), views=JSON)
    backup.put("orders", 0, batch([7], value=b"whole"))
    line = "restore cat orders --template %s"

    plain = run(tmp_path, line, json=False)
    narrow = run(tmp_path, f"{line} --only-format json", json=False)

    assert (0, "whole", "") == (plain.code, plain.stdout, plain.stderr)
    assert (0, '{"from":"json"}') == (narrow.code, narrow.stdout.replace(" ", ""))


def test_peek_shows_the_records_of_a_key_from_a_time_on(tmp_path: Path) -> None:
    """Options choose by key and time, also bytes that are no text."""
    backup = Backup.in_folder(tmp_path)
    backup.put("orders", 0, *(batch([at], key=b"\xff", value=b"v%d" % at) for at in range(3)))
    line = f"restore cat orders --template %s; --key \udcff --from-time {TIME + 1}"

    found = run(tmp_path, line, json=False)
    missed = run(tmp_path, f"{line} --to-time {TIME + 1}", json=False)

    assert (0, "v1;v2;") == (found.code, found.stdout)
    assert 2 == missed.code


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_peek_breaks_lines_on_a_screen_at_line_feeds_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, term: str
) -> None:
    """Unicode line separators are printed as the characters they are."""
    backup = Backup.in_folder(tmp_path)
    backup.put("orders", 0, batch([7], value="a\x0bb\x85c\u2028d\re".encode()))
    words = ["restore", "cat", "orders:0@7", "--store-url", f"file://{tmp_path}"]
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("TERM", term)

    with pytest.raises(SystemExit):
        root.main([*words, "--template", "%s|\n"], prog_name="kbackup", standalone_mode=False)

    assert "a\\x0bb\\x85c\\u2028d\\re|\n" == screen.getvalue()


@pytest.mark.parametrize(
    "words",
    ["sink status --metrics-file", "sink status --prometheus", "restore status --metrics-file"],
)
def test_status_writes_metrics(words: str, tmp_path: Path) -> None:
    """Of a bucket without a run too; --prometheus is what the option of a sink's was called."""
    out = tmp_path / "out.prom"

    result = run(tmp_path, f"{words} {out}")

    assert (7, True) == (result.code, "kbackup_up{" in out.read_text())


STANDBY = """\
store.url={url}
bootstrap.servers=none:9092
security.protocol=SSL
ssl.ca.location=/is/on/another/host.pem
rename=copy_of_$0
"""


@pytest.mark.parametrize(
    ("words", "exit_code"),
    [
        pytest.param("--config {file}", 0, id="configuration"),
        pytest.param("--config {file} -t orders", 0, id="topic of it"),
        pytest.param("--config {file} --rename other_$0", 7, id="another restore's options"),
        pytest.param("--config {file} --group night", 0, id="group"),
        pytest.param("--config {file} --of-group night", 0, id="another's group"),
        pytest.param("--config {file} --of-group none", 7, id="group of nobody"),
        pytest.param("--store-url {url} --rename copy_of_$0", 0, id="options"),
        pytest.param("--store-url {url} --rename copy_of_$0 --partition-map key", 7, id="map"),
        pytest.param("--store-url {url}", 2, id="nothing"),
    ],
)
def test_the_status_of_a_restore_is_that_of_its_configuration(
    words: str, exit_code: int, tmp_path: Path
) -> None:
    """Who restores otherwise from the bucket does not break the line that watches a standby."""
    url, file, layout = f"file://{tmp_path / 'backup'}", tmp_path / "s.properties", Layout()
    file.write_text(STANDBY.format(url=url))
    (tmp_path / "backup").mkdir()
    now, store = datetime.now(UTC), open_store(StoreSettings(url))
    settings = loading.load("restore", options={}, files=[file], environ={}).settings
    backup = identity.ensure(store, layout, wiring.address(settings).address, now)
    for group in (wiring.restore_groups(settings, backup)[0], "night"):
        rows = [row("orders")]
        of_group = ended(
            run=history.new_run_id(now), command="restore", group=group, partitions=rows
        )
        history.write_run(store, layout, of_group)
    asked = words.format(file=file, url=url).split()

    result = invoke("restore", "status", *asked, "--max-age", "1h")

    assert exit_code == result.code, result
    said = " ".join(result.stderr.split())
    assert (exit_code == 2) == ("restores of 2 consumer groups were found" in said)
    assert (exit_code == 2) == (f"night ({of_group.run}, orders)" in said)


def test_status_says_why_metrics_cannot_be_written(tmp_path: Path) -> None:
    """No folder is made for a file of a name that may be misspelt."""
    place = f"{tmp_path}/none/out.prom"

    result = run(tmp_path, f"sink status --metrics-file {place}", json=False)

    assert (2, []) == (result.code, list(tmp_path.iterdir()))
    assert _unfolded(f"metrics file {place} cannot be written") in _unfolded(result.stderr)
    assert "is not a folder" in result.stderr


def test_status_says_why_metrics_cannot_be_served(tmp_path: Path) -> None:
    """A port in use is an error of the command line: there is nothing else to do."""
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]

        result = run(tmp_path, f"sink status --metrics-listen {port}", json=False)

    assert 2 == result.code
    assert f"metrics cannot be served at 127.0.0.1:{port}" in result.stderr
    assert "Address already in use" in result.stderr


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        pytest.param("", "orders[0]@7 2023-11-14T22:13:20.007Z k trace=t7 v\n", id="usual"),
        pytest.param("-f %T\\n", f"{TIME + 7}\n", id="as kcat has it"),
    ],
)
def test_cat_shows_times_in_utc(more: str, expected: str, tmp_path: Path) -> None:
    """As every screen does; a template's letters mean what they mean to kcat."""
    backup = Backup.in_folder(tmp_path)
    backup.put("orders", 0, batch([7], key=b"k", value=b"v"))

    assert expected == run(tmp_path, f"restore cat orders {more}", json=False).stdout


def _unfolded(text: str) -> str:
    """Without spaces and ends of lines: a long path is folded anywhere."""
    return "".join(text.split())


@pytest.mark.parametrize(
    ("command", "code", "says"),
    [
        ("restore list", 7, "there is no backup under {}"),
        ("restore list orders", 7, "topic orders is not in the backup under {}"),
        ("restore cat orders", 7, "topic orders is not in the backup under {}"),
        ("restore verify", 7, "there is no backup under {}"),
        ("restore verify -t orders", 7, "topic orders is not in the backup under {}"),
        ("restore query SHOW", 7, "there is no backup under {}"),
        ("restore status", 7, "no good run of kbackup restore is known for {}"),
        ("sink status", 7, "no good run of kbackup sink is known for {}"),
        ("sink reindex", 7, "there is no backup under {}"),
        ("sink copy --to {copy}", 7, "there is no backup under {}"),
        ("sink expire --older-than 1d --dry-run", 7, "there is no backup under {}"),
        ("keys list", 2, "the backup under {} has no keys"),
    ],
)
def test_where_nothing_was_found_is_named(
    command: str, code: int, says: str, tmp_path: Path
) -> None:
    """Who has two buckets sees which of them is empty, or mistyped."""
    (tmp_path / "copy").mkdir()
    (tmp_path / "empty").mkdir()
    line = command.format(copy=f"file://{tmp_path}/copy")

    result = run(tmp_path / "empty", line, json=False)

    assert code == result.code
    place = f"file://{tmp_path}/empty/topics"
    assert _unfolded(says.format(place)) in _unfolded(result.stderr)


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("list", ["no partition that was asked for is in the backup under {}", "highest is 3"]),
        (
            "verify",
            [
                "nothing of what was asked for is in the backup under {}",
                "its topics: orders",
                "topics.regex and partitions",
            ],
        ),
    ],
)
def test_a_partition_that_is_not_there_does_not_deny_the_backup(
    command: str, says: list[str], tmp_path: Path
) -> None:
    """Who mistypes --partitions does not go and look for another bucket: what is there is told."""
    Backup.in_folder(tmp_path).put("orders", 3, range(5))

    result = run(tmp_path, f"restore {command} --partitions 7", json=False)

    place, said = f"file://{tmp_path}/topics", _unfolded(result.stderr)
    assert 7 == result.code
    assert [] == [text for text in says if _unfolded(text.format(place)) not in said]
