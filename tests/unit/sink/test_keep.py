"""What lies under a key is replaced only by more of the same."""

import pytest
from backup_samples import Backup, batch

from kbackup.records import Facts
from kbackup.stores import Store
from kbackup.stores.memory import MemoryStore


def records(store: Store, key: str) -> int:
    """How many records the object under *key* says it has."""
    head = store.head(key)
    facts = None if head is None else Facts.from_metadata(head.metadata)
    return -1 if facts is None else facts.records


@pytest.mark.parametrize(("first", "second"), [(10, 20), (20, 10), (10, 10)])
def test_more_is_kept_whoever_comes_first(first: int, second: int) -> None:
    """
    A rerun may have closed a shorter last file, or a longer one.
    """
    backup = Backup()

    (key,) = backup.put("orders", 0, range(first))
    backup.put("orders", 0, range(second))

    assert max(first, second) == records(backup.store, key)


def test_what_another_run_puts_while_this_one_compares_is_compared_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    Ten records are there, this run has twenty, and while it reads the ten another one puts thirty.
    """
    backup = Backup()
    (key,) = backup.put("orders", 0, range(10))
    read = MemoryStore.open
    others = [batch(range(30))]

    def open_late(store: MemoryStore, name: str) -> object:
        found = read(store, name)
        if others:
            backup.put("orders", 0, others.pop())
        return found

    monkeypatch.setattr(MemoryStore, "open", open_late)

    backup.put("orders", 0, range(20))

    assert 30 == records(backup.store, key)
