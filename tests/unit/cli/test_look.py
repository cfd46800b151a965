"""The commands that look, as they are typed."""

from pathlib import Path

from backup_samples import Backup, batch
from click.testing import CliRunner

from kbackup.cli import root


def test_peek_leaves_bytes_alone_in_a_pipe(tmp_path: Path) -> None:
    """
    Keys, payloads and headers that are no text reach the next program as they were backed up.
    """
    backup = Backup.in_folder(tmp_path)
    headers = [{"key": "trace", "value": b"\xff"}]
    backup.put("orders", 0, batch([7], key=b"\xfe", value=b"\xff\xc3\xa9", headers=headers))
    words = ["restore", "peek", "orders:0@7", "--store-url", f"file://{tmp_path}"]

    result = CliRunner().invoke(root, [*words, "--template", "%k|%s|%h"], prog_name="kbackup")

    assert (0, b"\xfe|\xff\xc3\xa9|trace=\xff") == (result.exit_code, result.stdout_bytes)
