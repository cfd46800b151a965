"""Objects that are no longer what the ledger says was stored."""

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from backup_samples import BYTES, JSON, RECORD, Backup, batch

from kbackup.records import TopicIdentity
from tests.support.ledgers import (
    ID,
    backup_with_ledger,
    by_ledger,
    enter,
    mending,
    verified,
)
from tests.support.verified import metadata_of


def test_an_object_that_holds_less_than_was_stored_is_found_without_reading_it() -> None:
    """A slow write of an earlier, shorter one landed on it."""
    backup, keys = backup_with_ledger(range(30))
    shorter = Backup()
    (key,) = shorter.put("orders", 0, range(20), identity=ID)
    backup.replace(keys[0], shorter.body(key), metadata_of(shorter, key))

    code, (finding,) = verified(backup)

    assert (7, "count_mismatch", keys[0]) == (code, finding["code"], finding["key"])
    assert "20 records up to offset 19; 30" in finding["text"]


def test_an_object_without_metadata_whose_rows_are_more_than_were_stored_has_split_values() -> None:
    """Its sha256 shows that it has not grown, so one record has become two rows."""
    backup, _ = backup_with_ledger(range(3), views=BYTES)
    (key,) = backup.put(
        "orders", 0, batch(range(3, 6), value=b"two\nlines"), views=BYTES, identity=ID
    )
    enter(backup, key, range(3, 6))
    backup.replace(key, backup.body(key), {})

    code, findings = verified(backup, deep=True)

    (error,) = [one for one in findings if one["level"] == "error"]
    assert (7, "count_mismatch", key) == (code, error["code"], error["key"])
    assert "it holds 6 records, the ledger says 3; what contains the separator" in error["text"]


def test_an_object_that_grew_since_the_ledger_was_read_is_no_error() -> None:
    """An object that holds more than its row is no error while its run may still enter it."""
    backup, keys = backup_with_ledger(range(20))
    backup.put("orders", 0, range(30), identity=ID)

    code, (finding,) = verified(backup)

    assert (0, "note", keys[0]) == (code, finding["level"], finding["key"])
    assert "30 records up to offset 29; 20 records" in finding["text"]


def test_growth_is_no_error_for_what_the_clock_of_its_row_says() -> None:
    """Where nobody has gone on behind an object, the run that stored it may still enter it."""
    backup, (key,) = backup_with_ledger(range(20))
    (before,) = backup.put("orders", 0, range(20, 25), identity=ID)
    enter(backup, before, range(20, 25), after_ms=86_400_000)
    backup.store.delete(before)
    backup.put("orders", 0, range(30), identity=ID)

    findings = verified(backup)[1]

    assert [("count_mismatch", "note")] == [
        (one["code"], one["level"]) for one in findings if one["key"] == key
    ]


@pytest.mark.parametrize("after_ms", [-86_400_000, 0, 86_400_000])
def test_growth_that_no_later_run_has_entered_is_an_error(after_ms: int) -> None:
    """A legitimate one would have a row by now; if it is right, a rebuild enters it."""
    backup, keys = backup_with_ledger(range(20))
    backup.put("orders", 0, range(30), identity=ID)
    (later,) = backup.put("orders", 0, range(30, 40), identity=ID)
    enter(backup, later, range(30, 40), after_ms=after_ms)

    code, findings = verified(backup)

    errors = [(one["code"], one["key"]) for one in findings if one["level"] == "error"]
    assert (7, [("count_mismatch", keys[0])]) == (code, errors)
    list(mending(backup).rebuild())
    assert (0, []) == verified(backup)


@pytest.mark.parametrize("deep", [False, True], ids=["names", "deep"])
@pytest.mark.parametrize(
    ("stranger", "code", "text"),
    [
        pytest.param(
            lambda other: other.put("orders", 0, batch(range(20), value=b"x"), identity=ID),
            "corrupt", "its sha256 differs", id="as many other records",
        ),
        pytest.param(
            lambda other: other.put("orders", 0, range(30), identity=TopicIdentity("c", "other")),
            "wrong_topic", "judging by the topic's id", id="another topic's",
        ),
        pytest.param(
            lambda other: other.put("orders", 0, range(5, 40), identity=ID),
            "corrupt", "it starts at offset 5", id="a later one",
        ),
        pytest.param(
            lambda other: other.put("orders", 1, range(30), identity=ID),
            "wrong_topic", "written as partition 1", id="another partition's",
        ),
        pytest.param(
            lambda other: other.put("paid", 0, range(30), identity=ID),
            "wrong_topic", "of paid", id="by what the file says",
        ),
        pytest.param(
            lambda other: other.put("orders", 1, range(30), views=JSON, identity=ID),
            "wrong_topic", "", id="another partition's values, which are no growth",
        ),
    ],
)  # fmt: skip
def test_another_object_in_a_stored_ones_place_is_found(
    stranger: Callable[[Backup], list[str]], code: str, text: str, deep: bool
) -> None:
    """However many records it has: the ledger, its metadata and the file must agree."""
    other = Backup()
    (key,) = stranger(other)
    views = JSON if key.endswith(".json") else RECORD
    backup, keys = backup_with_ledger(range(20), views=views)
    backup.replace(keys[0], other.body(key), metadata_of(other, key))

    found = by_ledger(backup, deep=deep)

    assert (7, [(code, keys[0])]) == (found.exit_code, found.errors)
    assert (True, 1) == (text in found.texts, len(found.findings))


def test_a_copy_of_another_object_is_found_though_its_format_says_nothing() -> None:
    """A copy of another object in a stored one's place is found by the ledger's checksum."""
    backup, (first, second) = backup_with_ledger(range(3), range(3, 9), views=JSON)
    # as a tool would that edits what it copies
    facts = metadata_of(backup, second) | {"first-offset": "0"}
    backup.replace(first, backup.body(second), facts)

    code, findings = verified(backup)

    assert (7, ["corrupt"]) == (code, [one["code"] for one in findings])
    assert f"it is a copy of {second}" == findings[0]["text"]


def test_the_ledger_vouches_for_an_object_that_has_lost_its_metadata(tmp_path: Path) -> None:
    """An object without metadata is checked against the ledger's checksum."""
    backup, (key,) = backup_with_ledger(range(20), views=JSON, into=Backup.in_folder(tmp_path))
    (tmp_path / ".kbackup" / "facts" / key).unlink()
    assert (0, []) == verified(backup, deep=True)

    path = backup.path(key)
    path.write_bytes(path.read_bytes().replace(b"19", b"91"))

    assert (0, []) == verified(backup)  # of the same size, and nothing says more
    code, findings = verified(backup, deep=True)
    assert (7, [("corrupt", key)]) == (code, [(one["code"], one["key"]) for one in findings])


def test_an_object_of_another_size_under_the_same_facts_is_found() -> None:
    """Metadata that was copied with it does not vouch for it."""
    backup, (key,) = backup_with_ledger(range(20))
    said, body = metadata_of(backup, key), io.BytesIO(backup.body(key) + b"x")
    backup.store.put(key, body, sha256=said["sha256"], metadata=said)

    code, findings = verified(backup)

    assert (7, ["corrupt"]) == (code, [one["code"] for one in findings])
    assert "were stored" in findings[0]["text"]
