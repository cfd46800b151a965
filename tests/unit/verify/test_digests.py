"""Full records compared with what they were when they were stored."""

import hashlib
import io
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from backup_samples import RECORD, SIBLINGS, Backup, batch
from hypothesis import given, settings
from record_samples import record_batches, write

from kbackup.batches import walk
from kbackup.batches.decoding import Tally
from kbackup.catalog.ledger.rows import stored
from kbackup.formats.log import LogFormat
from kbackup.naming import View
from kbackup.pipeline.rows import RecordsDigest
from kbackup.records import Facts, Span, TopicPartition
from kbackup.runs import backup_state
from tests.support.encoded import Sent
from tests.support.encoded import batch as packed
from tests.support.ledgers import CLOCK, WHERE, backup_with_ledger, mending, verified
from tests.support.verified import LAYOUTS, Verified, metadata_of

CHANGES: list[Any] = [
    pytest.param({"value": b"{}"}, id="a value"),
    pytest.param({"key": None}, id="a key that is gone"),
    pytest.param({"key": b""}, id="an empty key"),
    pytest.param({"timestamp": 5}, id="a time"),
    pytest.param({"timestamp_type": 2}, id="the kind of its time"),
    pytest.param({"headers": []}, id="no header"),
    pytest.param({"headers": [{"key": "trace", "value": None}]}, id="a header's value"),
]


def encoded(rows: Any) -> bytes:
    """Full records as they are stored."""
    return write(RECORD[0].open_format(), View.RECORD, [rows])


def wrongly_encoded(backup: Backup, key: str, data: bytes) -> None:
    """Put *data* there as an encoder that is wrong would have: with all that fits its bytes."""
    sha256 = hashlib.sha256(data).hexdigest()
    said = metadata_of(backup, key) | {"sha256": sha256}
    backup.store.put(key, io.BytesIO(data), sha256=sha256, metadata=said)
    backup.entries["orders"] = [backup.entry(key)]


def digests(*cuts: range) -> list[str]:
    """The digest of each cut."""
    found = []
    for cut in cuts:
        digest = RecordsDigest()
        digest.add(batch(cut))
        found.append(digest.text)
    return found


def said(backup: Backup, keys: list[str]) -> list[str | None]:
    """The digest that each object has beside it."""
    return [metadata_of(backup, key).get("digest") for key in keys]


@pytest.mark.parametrize("has_ledger", [True, False], ids=["by the ledger", "by the object"])
@pytest.mark.parametrize("change", CHANGES)
def test_records_that_are_not_those_that_were_stored_are_found(
    change: dict[str, Any], *, has_ledger: bool
) -> None:
    """Where everything else fits: names, counts, checksums; exit code 7, and the object's name."""
    backup = Backup()
    [key] = backup.run("orders", 0, range(5))
    wrongly_encoded(backup, key, encoded(batch(range(5), **change)))
    if not has_ledger:
        backup.entries.clear()

    verified = Verified(backup, deep=True)

    assert (7, [("corrupt", key)]) == (verified.exit_code, verified.errors)
    assert "digest differs" in verified.texts


@pytest.mark.parametrize("text", [None, "", "r2:00", "b1:00", "h1:00", "00"])
def test_what_cannot_be_compared_is_counted_and_no_error(text: str | None) -> None:
    """An object of an earlier version, or of a later one with a method that this does not know."""
    backup = Backup()
    [key] = backup.run("orders", 0, range(5))
    kept = metadata_of(backup, key)
    del kept["digest"]
    backup.replace(key, backup.body(key), kept | ({} if text is None else {"digest": text}))
    [row] = backup.entries["orders"]
    backup.entries["orders"] = [replace(row, digest=text)]

    verified = Verified(backup, deep=True)

    assert (0, [], ["ok"]) == (verified.exit_code, verified.findings, verified.states)
    assert [1] == [row["not_compared"] for row in verified.summary["partitions"]]


@pytest.mark.parametrize("views", LAYOUTS)
def test_only_full_records_are_compared(views: Any) -> None:
    """Rows of values do not give back all that was in Kafka: their objects are counted."""
    backup = Backup()
    keys = backup.run("orders", 0, range(4), range(4, 7), views=views)

    [row] = Verified(backup, deep=True).summary["partitions"]

    assert (0 if views == RECORD else len(keys)) == row["not_compared"]


def test_nothing_is_compared_that_is_not_read() -> None:
    """By names and ledger alone nothing is said about records."""
    backup = Backup()
    backup.run("orders", 0, range(4))

    assert [0] == [row["not_compared"] for row in Verified(backup).summary["partitions"]]


def test_an_object_that_has_grown_is_compared_with_what_it_says_itself() -> None:
    """The ledger knows less than it until the run that stored it enters it."""
    backup = Backup()
    [key] = backup.run("orders", 0, range(5))
    backup.put("orders", 0, range(8))
    good = Verified(backup, deep=True)
    before = backup.entries["orders"]
    wrongly_encoded(backup, key, encoded(batch(range(8), value=b"{}")))
    backup.entries["orders"] = before

    bad = Verified(backup, deep=True)

    assert [0] == [row["not_compared"] for row in good.summary["partitions"]]
    assert (0, 7, [("corrupt", key)]) == (good.exit_code, bad.exit_code, bad.errors)


@settings(deadline=None, max_examples=40)
@given(record_batches(max_size=6).filter(len))
def test_what_is_stored_comes_with_its_digest(rows: Any) -> None:
    """Beside the object is the digest of what went in, and its file gives the same back."""
    backup, digest = Backup(), RecordsDigest()
    digest.add(rows)

    [key] = backup.put("orders", 0, rows)

    assert [digest.text] == said(backup, [key])
    assert (0, []) == ((found := Verified(backup, deep=True)).exit_code, found.errors)


def test_objects_of_values_have_the_digest_of_their_records() -> None:
    """As read from Kafka, not converted; keys and headers have that of the values beside them."""
    backup = Backup()
    keys = backup.put("orders", 0, range(4), views=SIBLINGS)

    assert digests(range(4)) * 3 == said(backup, keys)


def test_an_object_of_two_runs_has_the_digest_of_both() -> None:
    """Where compaction came between, the records of both are one object, and are compared."""
    backup = Backup()
    backup.put("orders", 0, [0, 1, 3])
    [key] = backup.run("orders", 0, [0, 2, 3, 4])

    verified = Verified(backup, deep=True)

    assert digests(range(5)) == said(backup, [key])
    assert [0] == [row["not_compared"] for row in verified.summary["partitions"]]


def test_a_ledger_that_is_rebuilt_has_the_digests() -> None:
    """They are beside the objects; of one without, what the ledger knew of the same bytes stays."""
    backup, keys = backup_with_ledger(range(10), range(10, 20))
    kept, body = metadata_of(backup, keys[1]), io.BytesIO(backup.body(keys[1]))
    del kept["digest"]
    backup.store.put(keys[1], body, sha256=kept["sha256"], metadata=kept)

    list(mending(backup).rebuild())

    rows = backup_state.read(backup.store, backup.layout, CLOCK).ledger(WHERE).objects
    assert digests(range(10), range(10, 20)) == [rows[key].digest for key in keys]
    assert (0, []) == verified(backup, deep=True)


def test_a_row_of_other_bytes_keeps_neither_digest_nor_run_of_those_before() -> None:
    """They go with the bytes: what names the row of a run is about those that it stored."""
    where, span = TopicPartition("orders", 0), Span(0, 5)
    before = stored(where, "k", View.RECORD, Facts(0, 4, 5, 1, 2, "aa", "r1:00"), 9, span, "r", 1)
    same = stored(where, "k", View.RECORD, Facts(0, 4, 5, 1, 2, "aa"), 9, span, "", 1)
    other = stored(where, "k", View.RECORD, Facts(0, 4, 5, 1, 2, "bb"), 9, span, "", 1)

    found = [now.instead_of(before) for now in (same, other)]

    assert [("r1:00", "r"), (None, "")] == [(one.digest, one.run) for one in found]


@pytest.mark.parametrize("code", [0, 7])
def test_batches_are_compared_with_what_they_were(code: int) -> None:
    """Whatever fits otherwise: batches that are not those that were stored are found."""
    backup = Backup()
    form, file, tally = LogFormat(), io.BytesIO(), Tally()
    records = [Sent(b"a"), Sent(b"b")]
    kept, other = (walk(pa.py_buffer(packed(7, records, codec))).check() for codec in (0, 4))
    tally.add(kept if code == 0 else other)
    writer = form.batch_writer(file)
    writer.write(kept)
    writer.close({})
    facts = tally.facts()
    assert facts is not None
    facts = replace(facts, sha256=hashlib.sha256(file.getvalue()).hexdigest())
    key = "topics/orders/partition=0/orders+0+0000000007.record.log.zst"
    backup.store.put(key, file, sha256=facts.sha256, metadata=facts.to_metadata())

    found = Verified(backup, deep=True)

    assert (code, [("corrupt", key)] if code else []) == (found.exit_code, found.errors)
    assert [0] == [row["not_compared"] for row in found.summary["partitions"]]
