import json
from pathlib import Path

import pytest

from kbackup.cli.output import SummaryFile
from kbackup.errors import ConfigurationError, KbackupError
from tests.support.ended import RUN, ended


def write(path: Path, code: int, run: str = RUN) -> None:
    with SummaryFile(str(path)) as file:
        pass
    file.finish(ended(run=run, exit_code=code))


@pytest.mark.parametrize(
    ("codes", "success"),
    [
        pytest.param([0], "2026-11-21T02:00:00Z", id="good"),
        pytest.param([3], "2026-11-21T02:00:00Z", id="good, with something to say"),
        pytest.param([6], None, id="never good"),
        pytest.param([0, 6, 143], "2026-11-21T02:00:00Z", id="good once"),
        pytest.param([0, 8], "2026-11-21T02:00:00Z", id="held lock"),
        pytest.param([0, 0], "2026-11-21T02:01:00Z", id="good twice"),
    ],
)
def test_last_success_is_carried(tmp_path: Path, codes: list[int], success: str | None) -> None:
    """A monitor can alert on the age of the last good run, however many failed since."""
    path = tmp_path / "summary.json"

    for number, code in enumerate(codes):
        write(path, code, RUN.replace("02:00", f"02:{number:02}"))

    assert success == json.loads(path.read_text())["last_success"]


def test_a_held_lock_leaves_the_file_to_its_holder(tmp_path: Path) -> None:
    """A run that did nothing does not replace the summary of the one that works."""
    path = tmp_path / "summary.json"
    write(path, 0)

    write(path, 8)

    assert 0 == json.loads(path.read_text())["exit_code"]


@pytest.mark.parametrize(
    "old", [b"", b"{", b"[]", b'{"last_success": 7}', b"\xff", b'{"last_success": "soon"}']
)
def test_a_damaged_file_is_a_missing_one(tmp_path: Path, old: bytes) -> None:
    """Leftovers of an earlier crash do not stop a run."""
    path = tmp_path / "summary.json"
    path.write_bytes(old)

    write(path, 1)

    assert None is json.loads(path.read_text())["last_success"]


def test_it_is_replaced_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that dies while writing leaves the old summary and no temporary file."""
    path = tmp_path / "summary.json"
    write(path, 0)
    before = path.read_bytes()

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(KbackupError, match="was not written: No space left on device"):
        write(path, 6)

    assert (before, [path]) == (path.read_bytes(), list(tmp_path.iterdir()))


def test_others_may_read_it(tmp_path: Path) -> None:
    """The file's mode follows the umask, as a monitor of another user needs it."""
    path, plain = tmp_path / "summary.json", tmp_path / "plain"
    plain.touch()

    write(path, 0)

    assert plain.stat().st_mode == path.stat().st_mode


@pytest.mark.parametrize(
    ("name", "why"),
    [
        pytest.param("missing/summary.json", "missing is not a folder", id="no folder"),
        pytest.param(".", "it exists and is not a file", id="a folder"),
    ],
)
def test_a_place_that_cannot_be_is_refused(tmp_path: Path, name: str, why: str) -> None:
    """A device or folder is never replaced by a summary."""
    with pytest.raises(ConfigurationError) as caught, SummaryFile(str(tmp_path / name)):
        pass

    assert caught.value.why.endswith(why)
