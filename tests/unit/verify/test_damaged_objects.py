"""Damaged bytes, objects in a wrong place, files of another make."""

import io
from collections.abc import Callable
from gzip import compress as pack
from gzip import decompress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from backup_samples import JSON, JSON_GZIP, Backup

from kbackup.catalog import listing
from kbackup.catalog.listing import FileSet
from kbackup.formats import FormatOptions
from kbackup.naming import Layout
from kbackup.pipeline.views import ReadOptions
from kbackup.records import Facts, TopicIdentity, TopicPartition
from kbackup.spark.channel import TaskChannel
from kbackup.stores import StoreSettings, open_store
from kbackup.verify.task import VerifyUnit, verify_task
from tests.support.verified import LAYOUTS, Verified, offsets


def moved(backup: Backup, key: str, old: str, new: str) -> str:
    """Give an object another name; return it."""
    renamed = key.replace(old, new)
    backup.replace(key, backup.body(key), to=renamed)
    backup.store.delete(key)
    return renamed


def damaged(backup: Backup, key: str, data: bytes) -> Verified:
    """Return what a deep verify says once *data* lies in an object's place."""
    backup.replace(key, data)
    return Verified(backup, deep=True)


@pytest.mark.parametrize("views", LAYOUTS)
@pytest.mark.parametrize(
    "share",
    [
        pytest.param(0.0, id="nothing"),
        pytest.param(0.25, id="a quarter"),
        pytest.param(0.5, id="half"),
        pytest.param(0.75, id="three quarters"),
        pytest.param(0.99, id="nearly all"),
    ],
)
def test_an_object_that_was_cut_short_is_named(views: Any, share: float) -> None:
    """A file that ends too early is found by its own form, or by its count of records."""
    backup = Backup()
    keys = backup.put("orders", 0, range(40), views=views)
    body = backup.body(keys[-1])

    verified = damaged(backup, keys[-1], body[: int(len(body) * share)])

    [(code, key)] = verified.errors
    assert (7, keys[-1]) == (verified.exit_code, key)
    assert code in ("corrupt", "count_mismatch")


@pytest.mark.parametrize("views", LAYOUTS)
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"P", id="one byte"),
        pytest.param(b"PAR1", id="magic of Parquet"),
        pytest.param(b"\x1f\x8b", id="magic of gzip"),
        pytest.param(b"PAR1" + bytes(40) + b"PARE", id="encrypted Parquet"),
        pytest.param(b"Obj\x01", id="magic of Avro"),
        pytest.param(b"\x00" * 1000, id="zeros"),
        pytest.param(b"<html>not found</html>\n", id="another server's answer"),
        pytest.param(pack(b'{"n":0}\n'), id="gzip of one line"),
    ],
)
def test_an_object_that_is_something_else_is_named(views: Any, data: bytes) -> None:
    """Whatever is in an object's place is reported as damaged, and nothing crashes."""
    backup = Backup()
    keys = backup.put("orders", 0, range(4), views=views)

    verified = damaged(backup, keys[-1], data)

    assert (7, {keys[-1]}) == (verified.exit_code, {key for _, key in verified.errors})


@pytest.mark.parametrize("views", LAYOUTS)
@pytest.mark.parametrize("at", [0.0, 0.1, 0.4, 0.7, 0.95])
def test_a_flipped_bit_is_found(tmp_path: Path, views: Any, at: float) -> None:
    """Each object carries its checksum, so one wrong bit anywhere is named."""
    backup = Backup.in_folder(tmp_path)
    keys = backup.put("orders", 0, range(20), views=views)
    data = bytearray(backup.body(keys[-1]))
    data[int(len(data) * at)] ^= 1
    backup.path(keys[-1]).write_bytes(data)

    verified = Verified(backup, deep=True)

    assert (7, [("corrupt", keys[-1])]) == (verified.exit_code, verified.errors)
    assert "sha256" in verified.texts


@pytest.mark.parametrize(
    "mutate",
    [
        pytest.param(lambda lines: [lines[0], *lines], id="duplicated"),
        pytest.param(lambda lines: lines[1:], id="removed"),
        pytest.param(lambda lines: [lines[1], lines[0], *lines[2:]], id="swapped"),
    ],
)
def test_changed_lines_are_found(
    tmp_path: Path, mutate: Callable[[list[bytes]], list[bytes]]
) -> None:
    """Valid JSON lines other than those stored are detected by the checksum."""
    backup = Backup.in_folder(tmp_path)
    [key] = backup.put("orders", 0, range(5), views=JSON)
    backup.path(key).write_bytes(b"".join(mutate(backup.body(key).splitlines(keepends=True))))

    assert [("corrupt", key)] == Verified(backup, deep=True).errors


@pytest.mark.parametrize(
    ("mutate", "expected"),
    [
        pytest.param(lambda lines: [lines[0], *lines], 6, id="duplicated"),
        pytest.param(lambda lines: lines[1:], 4, id="removed"),
    ],
)
def test_a_wrong_number_of_rows_is_found(
    mutate: Callable[[list[bytes]], list[bytes]], expected: int
) -> None:
    """The number of records that was stored with an object is compared with its rows."""
    backup = Backup()
    [key] = backup.put("orders", 0, range(5), views=JSON)

    verified = damaged(backup, key, b"".join(mutate(backup.body(key).splitlines(keepends=True))))

    assert [("count_mismatch", key)] == verified.errors
    assert f"it holds {expected} records; 5 were stored" == verified.texts


@pytest.mark.parametrize(
    ("change", "code"),
    [
        pytest.param(lambda plain: pack(plain[:16]) + pack(plain[16:]), None, id="two members"),
        pytest.param(lambda plain: pack(plain) + bytes(512), None, id="zeros behind"),
        pytest.param(
            lambda plain: pack(plain)[:-8] + bytes(4) + pack(plain)[-4:], "corrupt", id="wrong CRC"
        ),
        pytest.param(lambda plain: pack(plain)[:-4] + b"\0\0\0\1", "corrupt", id="false length"),
        pytest.param(lambda plain: pack(plain) + b"x", "corrupt", id="something behind"),
        pytest.param(lambda plain: plain, "corrupt", id="not compressed"),
    ],
)
def test_gzip_is_judged_by_its_own_checks(
    change: Callable[[bytes], bytes], code: str | None
) -> None:
    """Gzip of several members or with padding is good; wrong checksums and lengths are not."""
    backup = Backup()
    [key] = backup.put("orders", 0, range(5), views=JSON_GZIP)

    verified = damaged(backup, key, change(decompress(backup.body(key))))

    assert ([] if code is None else [(code, key)]) == verified.errors


def test_a_plain_file_named_gzip_is_found() -> None:
    """The extension says how a file is packed; gzip under a plain name is not JSON."""
    backup = Backup()
    [key] = backup.put("orders", 0, range(5), views=JSON)

    verified = damaged(backup, key, pack(backup.body(key)))

    assert [("corrupt", key)] == verified.errors


def test_an_extension_that_cannot_be_is_found() -> None:
    """Full records are never JSON, so an object renamed to that is named."""
    backup = Backup()
    [key] = backup.put("orders", 0, range(5))
    renamed = moved(backup, key, ".zstd.parquet", ".json")

    verified = Verified(backup, deep=True)

    assert (7, [("corrupt", renamed)]) == (verified.exit_code, verified.errors)


def test_an_empty_object_is_found_by_its_name() -> None:
    """An object of 0 bytes is damaged, without reading it."""
    backup = Backup()
    [key] = backup.run("orders", 0, range(5))
    backup.replace(key, b"")

    verified = Verified(backup)

    assert (7, [("corrupt", key)]) == (verified.exit_code, verified.errors)


def test_one_damaged_object_does_not_hide_another() -> None:
    """All objects are read, whatever is wrong with the first."""
    backup = Backup()
    keys = backup.put("orders", 0, range(3), range(3, 6), range(6, 9))
    backup.replace(keys[0], b"x")
    backup.replace(keys[2], b"y")

    verified = Verified(backup, deep=True)

    assert [("corrupt", keys[0]), ("corrupt", keys[2])] == verified.errors
    assert [[0, 2], [6, 8]] == offsets(verified)
    assert 3 == verified.summary["objects"]


# Objects in a wrong place: F6


def test_an_object_after_which_no_offset_can_come_is_foreign() -> None:
    """It is no record of Kafka's, and what is counted up to it would not fit in 64 bits."""
    backup = Backup()
    backup.put("orders", 0, range(3))
    backup.replace(f"topics/orders/partition=0/orders+0+{2**63 - 1}.json", b"{}\n", {})

    verified = Verified(backup)

    assert (3, {"foreign_objects": 1}) == (verified.exit_code, verified.summary["skipped"])


def test_an_object_in_another_topics_folder_is_foreign() -> None:
    """Folder and name must agree, or the object is reported and not counted (exit 3)."""
    backup = Backup()
    [key] = backup.run("orders", 0, range(3))
    backup.replace(key, backup.body(key), to=key.replace("topics/orders/", "topics/paid/"))

    verified = Verified(backup, deep=True)

    assert (3, {"foreign_objects": 1}) == (verified.exit_code, verified.summary["skipped"])
    assert ["foreign_object"] == [each["code"] for each in verified.summary["warnings"]]


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        pytest.param("orders", "paid", "wrong_topic", id="another topic"),
        pytest.param("partition=0/orders+0", "partition=0/orders+1", "wrong_topic", id="partition"),
        pytest.param("+0000000000", "+0000000001", "corrupt", id="later than its records"),
        pytest.param("+0000000100", "+0000000099", "corrupt", id="earlier than its records"),
    ],
)
def test_a_renamed_object_is_found(old: str, new: str, code: str) -> None:
    """A file of full records says where it belongs, whatever it is called."""
    backup = Backup()
    keys = backup.put("orders", 0, range(3), range(100, 103))
    [key] = [key for key in reversed(keys) if old in key][:1]
    renamed = moved(backup, key, old, new)

    verified = Verified(backup, deep=True)

    assert (7, [(code, renamed)]) == (verified.exit_code, verified.errors)


@pytest.mark.parametrize("to", [99, 101])
def test_a_renamed_value_object_is_found_by_its_facts(to: int) -> None:
    """Values do not say their offsets, but what was stored with the object does."""
    backup = Backup()
    [key] = backup.put("orders", 0, range(100, 103), views=JSON)
    renamed = moved(backup, key, "+0000000100", f"+{to:010}")

    assert [("corrupt", renamed)] == Verified(backup, deep=True).errors


def test_a_copy_is_noted() -> None:
    """A copied value object is as good as its original; a note says that there are two."""
    backup = Backup()
    [key] = backup.put("orders", 0, range(3), views=JSON)
    copy = key.replace("orders", "paid")
    backup.replace(key, backup.body(key), to=copy)

    verified = Verified(backup, deep=True)

    assert [("duplicate", f"the same bytes as {key}")] == verified.notes
    assert 0 == verified.exit_code


def test_a_file_with_another_end_is_found() -> None:
    """As many records as were stored, but not the same ones, are not what was stored."""
    backup = Backup()
    [key] = backup.put("orders", 0, [0, 1, 2])
    another = Backup()
    another.put("orders", 0, [0, 1, 3])
    backup.replace(key, another.body(key))

    verified = Verified(backup, deep=True)

    assert [("count_mismatch", key)] == verified.errors
    assert "its last record has offset 3; it was stored with 2" == verified.texts


# Full-record files of another make: F14


UNREADABLE = "topics/orders/partition=0/orders+0+0000000000.snappy.parquet"


def unreadable() -> bytes:
    """Return another tool's file with a number that no type of Connect holds."""
    file = io.BytesIO()
    pq.write_table(pa.table({"much": pa.array([2**63], pa.uint64())}), file)
    return file.getvalue()


def test_what_is_not_supported_is_an_error_and_not_called_damaged() -> None:
    """An object that a restore refuses by name is a finding with the code of a refusal."""
    backup = Backup()
    backup.replace(UNREADABLE, unreadable(), {})

    verified = Verified(backup, deep=True)

    assert [("unsupported_object", UNREADABLE)] == verified.errors
    assert (4, ["not supported"]) == (verified.exit_code, verified.states)
    assert ["unsupported_object"] == [error["code"] for error in verified.summary["errors"]]
    assert "repair" not in {event.get("code") for event in verified.events}


def test_damage_decides_the_exit_code_beside_any_number_of_unsupported_objects() -> None:
    """However many objects are not supported, a damaged one is among the errors that are named."""
    backup = Backup()
    for partition in range(101):
        key = UNREADABLE.replace("=0/", f"={partition}/").replace("+0+", f"+{partition}+")
        backup.replace(key, unreadable(), {})
    bad = backup.put("payments", 0, [0])[0]

    verified = damaged(backup, bad, b"PAR1")

    assert 7 == verified.exit_code
    assert bad == verified.summary["errors"][0]["key"]


def test_an_unsupported_object_that_is_not_what_was_stored_is_damaged(tmp_path: Path) -> None:
    """Where the ledger knows the checksum of what cannot be read, it is compared all the same."""
    store, files = _unreadable_set(tmp_path)
    facts = Facts(0, 0, 1, None, None, "0" * 64)

    (report,) = verify_task(
        store, ReadOptions(), [VerifyUnit(files, stored=facts)], TaskChannel(None)
    )

    assert ["corrupt"] == [problem.code for problem in report.problems]


def test_an_unsupported_object_without_a_checksum_is_not_called_checked(tmp_path: Path) -> None:
    """What was not read to its end cannot have shown a flipped bit, whatever its format checks."""
    store, files = _unreadable_set(tmp_path)

    (report,) = verify_task(store, ReadOptions(), [VerifyUnit(files)], TaskChannel(None))

    assert ((UNREADABLE,), ["unsupported_object"]) == (
        report.unchecked,
        [problem.code for problem in report.problems],
    )


def _unreadable_set(folder: Path) -> tuple[StoreSettings, FileSet]:
    """Return a folder with an object that no sink of ours has stored, and its set."""
    path = folder / UNREADABLE
    path.parent.mkdir(parents=True)
    path.write_bytes(unreadable())
    settings = StoreSettings(folder.as_uri())
    found = listing.list_backup(open_store(settings), Layout(), FormatOptions())
    return settings, found.sets[TopicPartition("orders", 0)][0]


def rewritten(data: bytes, change: Callable[[pa.Table], pa.Table], **metadata: str) -> bytes:
    """Return a full-record file with its table changed, and its metadata."""
    parquet = pq.ParquetFile(io.BytesIO(data))
    names = {name.decode(): text.decode() for name, text in parquet.metadata.metadata.items()}
    table = change(parquet.read())
    file = io.BytesIO()
    with pq.ParquetWriter(file, table.schema, store_schema=False) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(
            names | {f"kbackup.{name}": text for name, text in metadata.items()}
        )
    return file.getvalue()


@pytest.mark.parametrize(
    ("change", "metadata", "expected"),
    [
        pytest.param(
            lambda table: table.drop_columns("headers"), {}, "headers is missing", id="no column"
        ),
        pytest.param(
            lambda table: table.set_column(3, "key", table["key"].cast(pa.string())),
            {},
            "column key should be",
            id="another type",
        ),
        pytest.param(
            lambda table: table.append_column("key", table["key"]),
            {},
            "key is twice",
            id="a column twice",
        ),
        pytest.param(lambda table: table, {"format_version": "2"}, "version 2", id="later version"),
        pytest.param(lambda table: table, {"records": "9"}, "records", id="false count"),
        pytest.param(
            lambda table: table.take([1, 0, 2]), {}, "offset 0 follows offset 1", id="swapped rows"
        ),
        pytest.param(
            lambda table: table.slice(0, 2),
            {"records": "2", "last_offset": "1"},
            "it holds 2 records; 3 were stored",
            id="a row less",
        ),
    ],
)
def test_a_full_record_file_of_another_make_is_named(
    change: Callable[[pa.Table], pa.Table], metadata: dict[str, str], expected: str
) -> None:
    """A file that another program wrote, or changed, is refused with the reason."""
    backup = Backup()
    [key] = backup.put("orders", 0, range(3))

    verified = damaged(backup, key, rewritten(backup.body(key), change, **metadata))

    assert (7, key) == (verified.exit_code, verified.errors[0][1])
    assert expected in verified.texts


@pytest.mark.parametrize(("other", "code"), [("one", 0), ("another", 7)])
def test_objects_of_two_topics_are_told_apart_without_a_ledger(other: str, code: int) -> None:
    """A restore stops at the first that says it is of another topic, and so it is named."""
    backup = Backup()
    backup.put("orders", 0, range(5), identity=TopicIdentity("cluster", "one"))
    [key] = backup.put("orders", 0, range(5, 9), identity=TopicIdentity("cluster", other))

    verified = Verified(backup, deep=True)

    assert code == verified.exit_code
    assert ([("wrong_topic", key)] if code else []) == verified.errors
