"""The doctor counts who could decrypt a backup."""

from pathlib import Path

import pytest

from kbackup.inspect.examination import open_for, store_checks
from kbackup.stores.encrypted import EncryptedStore
from tests.support.configurations import load
from tests.unit.catalog.test_keys import private_key, public_key


@pytest.mark.parametrize(("count", "level"), [(1, "warn"), (2, "ok")])
def test_one_recipient_is_too_few(tmp_path: Path, count: int, level: str) -> None:
    """A key that is lost must not be the backup."""
    (tmp_path / "lake").mkdir()
    names = [public_key(private_key(tmp_path / str(n))) for n in range(count)]
    settings = load(
        "doctor",
        store_url=(tmp_path / "lake").as_uri(),
        encryption_recipients=",".join(names),
        encryption_key_file=str(tmp_path / "own"),
    ).settings
    store = open_for(settings)
    assert isinstance(store, EncryptedStore)

    found = {check.name: check for check in store_checks(store, settings, writes=True)}

    assert level == found["encryption"].level
    assert found["encryption"].text.startswith(f"{count} recipient")
    assert "ok" == found["writable"].level
    assert not (tmp_path / "own").exists()
