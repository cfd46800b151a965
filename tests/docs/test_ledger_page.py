"""What the page on the storage format says of its files is so."""

import re
from pathlib import Path

import pytest
from backup_samples import Backup

from kbackup.catalog.groups import GROUPS
from kbackup.catalog.ledger.rows import OBJECTS, TOPICS, Entry, StreamForm, table
from kbackup.catalog.ledger.stream import topic_stream
from kbackup.clock import SystemClock

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "storage-format.md").read_text()


@pytest.mark.parametrize("form", [OBJECTS, TOPICS, GROUPS], ids=["objects", "topics", "groups"])
def test_each_column_is_on_the_page(form: StreamForm) -> None:
    """Every column of the ledger's files is documented."""
    for name in form.schema.names:
        assert f"`{name}`" in PAGE


def test_anybody_can_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page's example runs in a real backup's folder."""
    backup = Backup.in_folder(tmp_path)
    stream = topic_stream(backup.store, backup.layout, "orders", SystemClock())
    stream.append(table([Entry("object", 0, 0, 9, "a-key", "record", 10, 77, "ab")], OBJECTS))
    stream.append(table([Entry("gap", 0, 10, 19)], OBJECTS))
    stream.fold(1)
    digest = Path(stream.prefix).parts[2]
    match = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert match is not None
    monkeypatch.chdir(tmp_path)
    assert Path(f"_kbackup/ledger/{digest}/objects/orders").is_dir()

    example = match[1].replace("5a3c11d2", digest).replace(".to_pandas()", ".to_pydict()")
    exec(compile(example, "storage-format.md", "exec"), {})

    assert "a-key" in capsys.readouterr().out
