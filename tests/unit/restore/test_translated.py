"""Which offsets of a target have which of the backup: rows beside positions, and stored ones."""

from contextlib import suppress
from dataclasses import replace

import pytest
from backup_samples import JSON

from kbackup.catalog.translated import TranslatedEntry, Translation, TranslationLog
from kbackup.errors import StoreError
from kbackup.naming import Layout
from kbackup.restore import transaction
from kbackup.runs.position import TRANSLATED_MOST, RestorePosition
from tests.support.hand_clock import HandClock
from tests.support.target import COPY, CrashError, Restoring, position


def rows_of(restoring: Restoring) -> list[Translation]:
    """All rows of the copy's partition: those beside its position, and those that are stored."""
    (group,) = restoring.cluster.groups
    stored, _ = _log(restoring, group).read(COPY.topic)
    read = RestorePosition.read(COPY, position(restoring))
    assert read is not None
    return sorted({*(row.translation for row in stored), *read[0].translated})


def _log(restoring: Restoring, group: str) -> TranslationLog:
    return TranslationLog(restoring.store, Layout(), group, HandClock())


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Restoring:
    """A restore each of whose objects, of ten records, is a transaction."""
    monkeypatch.setattr(transaction, "TRANSACTION_RECORDS", 10)
    return Restoring()


def test_each_transaction_has_a_row(small: Restoring) -> None:
    """A row has the offsets of a transaction's records there and here; markers lie between."""
    small.backup.put("orders", 0, range(10), range(15, 25))

    small.restore()

    assert [Translation(0, 9, 10, 0, 9), Translation(15, 24, 10, 11, 20)] == rows_of(small)


def test_rows_that_have_no_room_are_stored(small: Restoring) -> None:
    """Of many transactions the newest rows travel with the position, the others are stored."""
    count = 3 * TRANSLATED_MOST
    small.backup.put("orders", 0, *(range(at * 10, at * 10 + 10) for at in range(count)))

    small.restore()

    expected = [Translation(at * 10, at * 10 + 9, 10, at * 11, at * 11 + 9) for at in range(count)]
    read = RestorePosition.read(COPY, position(small))
    assert read is not None
    assert 0 < len(read[0].translated) <= TRANSLATED_MOST
    assert expected == rows_of(small)


@pytest.mark.parametrize("crash_at", range(2, 22))
def test_no_kill_loses_a_row(small: Restoring, crash_at: int) -> None:
    """A restore that is killed at any commit, and run again, has a row for each transaction."""
    count = 20
    small.backup.put("orders", 0, *(range(at * 10, at * 10 + 10) for at in range(count)))

    with suppress(CrashError):
        small.restore(run="r1", crash_at=crash_at)
    small.restore(run="r2")

    assert [(at * 10, at * 10 + 9) for at in range(count)] == [
        (row.first, row.last) for row in rows_of(small)
    ]


def test_values_without_offsets_have_no_row(small: Restoring) -> None:
    """The offsets of a connector's values are guessed, so nothing is translated by them."""
    small.backup.put("orders", 0, range(10), views=JSON)

    small.restore()

    assert [] == rows_of(small)


def test_a_read_only_bucket_keeps_no_restore_from_its_end(
    small: Restoring, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that cannot be stored are lost; the records are not."""

    def refuse(*_: object, **__: object) -> None:
        raise StoreError("writing", "access denied")

    count = 2 * TRANSLATED_MOST
    small.backup.put("orders", 0, *(range(at * 10, at * 10 + 10) for at in range(count)))
    monkeypatch.setattr(TranslationLog, "append", refuse)

    small.restore()

    assert count * 10 == len(small.cluster.values(COPY.topic))


def test_a_group_of_any_name_has_a_folder_of_its_own() -> None:
    """Slashes and dots in a group's name leave the folder of no other group."""
    groups = ["a", "a/b", "..", ".", "A", "a%2Fb", "b/../a"]
    restoring = Restoring()
    row = TranslatedEntry(0, "", "orders", 0, 0, 0, 1, 0, 0)

    for group in groups:
        _log(restoring, group).append("copy", [replace(row, target_id=group)])

    assert [[group] for group in groups] == [
        [one.target_id for one in _log(restoring, group).read("copy")[0]] for group in groups
    ]
