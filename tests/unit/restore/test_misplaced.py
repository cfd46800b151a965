"""Objects that are not what their names say, and files that do not fit each other."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from backup_samples import BYTES, JSON, OPTIONS, RECORD, SIBLINGS, Backup, batch
from record_samples import write

from kbackup.errors import CorruptObjectError, IncompleteBackupError, RefusedError
from kbackup.naming import View
from kbackup.pipeline.views import ReadOptions, ViewSpec
from tests.support.target import Restoring, values

KEYED_BYTES = (ViewSpec(View.KEY, "bytes", OPTIONS, "bytes"), *JSON)


def copy_over(backup: Backup, key: str, name: str, *, with_metadata: bool = True) -> None:
    """Put the object *key* under another name."""
    head = backup.store.head(key)
    assert head is not None
    metadata = dict(head.metadata) if with_metadata else {}
    backup.replace(key, backup.body(key), metadata, to=name)


Misplace = Callable[[Backup, list[str]], str]


def _copied_over(backup: Backup, keys: list[str]) -> str:
    copy_over(backup, keys[2], keys[1])
    return keys[1]


def _copied_over_without_metadata(backup: Backup, keys: list[str]) -> str:
    copy_over(backup, keys[2], keys[1], with_metadata=False)
    return keys[1]


def _under_a_free_name(backup: Backup, keys: list[str]) -> str:
    name = keys[1].replace("0000000010", "0000000015")
    copy_over(backup, keys[1], name)
    return name


def _of_another_topic(backup: Backup, keys: list[str]) -> str:
    (other,) = backup.put("payments", 0, range(10, 20))
    copy_over(backup, other, keys[1])
    return keys[1]


def _of_another_partition(backup: Backup, keys: list[str]) -> str:
    (other,) = backup.put("orders", 1, range(10, 20))
    copy_over(backup, other, keys[1], with_metadata=False)
    backup.store.delete(other)
    return keys[1]


def _with_anothers_metadata(backup: Backup, keys: list[str]) -> str:
    head = backup.store.head(keys[1])
    assert head is not None
    backup.replace(keys[1], backup.body(keys[1]), dict(head.metadata) | {"records": "9"})
    return keys[1]


@pytest.mark.parametrize(
    "misplace",
    [
        pytest.param(_copied_over, id="copied over another"),
        pytest.param(_copied_over_without_metadata, id="without metadata"),
        pytest.param(_under_a_free_name, id="under a name of its own"),
        pytest.param(_of_another_topic, id="another topic's"),
        pytest.param(_of_another_partition, id="another partition's"),
        pytest.param(_with_anothers_metadata, id="another's metadata"),
    ],
)
@pytest.mark.parametrize("on_error", ["fail", "log"])
def test_no_record_of_an_object_in_the_wrong_place_is_written(
    misplace: Misplace, on_error: str
) -> None:
    """Exit 7 before its first record; with ``log`` it is named and left out, and the rest comes."""
    again = Restoring()
    keys = again.backup.put("orders", 0, range(10), range(10, 20), range(20, 30))
    name = misplace(again.backup, keys)
    good = name not in keys
    options: dict[str, Any] = {"topics": "orders", "on_error": on_error}

    if on_error == "fail":
        with pytest.raises(CorruptObjectError) as caught:
            again.restore(**options)
        assert name == caught.value.place["key"]
        ours = again.cluster.values("copy_of_orders")
        assert ours == values(range(len(ours)))
        assert len(ours) <= (20 if good else 10)
    else:
        reports = again.restore(**options)
        assert [name] == [entry.place["key"] for report in reports for entry in report.own.skipped]
        left = values(range(30)) if good else values(range(10), range(20, 30))
        assert left == again.cluster.values("copy_of_orders")
        assert "left_out" in [code for code, _ in again.plan(topics="orders").topics[0].warnings]


def test_a_value_object_under_another_name_is_known_by_its_metadata() -> None:
    """A value object under another object's name is known by what was stored with it."""
    again = Restoring()
    keys = again.backup.put("orders", 0, range(10), range(10, 20), views=JSON)
    name = keys[-1].replace("0000000010", "0000000012")
    copy_over(again.backup, keys[-1], name)

    with pytest.raises(CorruptObjectError, match="its name says 12"):
        again.restore()

    assert values(range(10)) == again.cluster.values("copy_of_orders")[:10]
    assert len(again.cluster.values("copy_of_orders")) in (10, 20)


def test_a_value_object_under_another_name_lacks_its_siblings_there() -> None:
    """It says that keys were stored with it, and there are none under that name."""
    again = Restoring()
    keys = again.backup.put("orders", 0, range(10), range(10, 20), views=SIBLINGS)
    copy_over(again.backup, keys[-1], keys[-1].replace("0000000010", "0000000012"))

    with pytest.raises(IncompleteBackupError, match=r"0000000012\.keys\.json is missing"):
        again.restore()


@pytest.mark.parametrize("view", [View.VALUE, View.KEY], ids=["values", "keys"])
@pytest.mark.parametrize("on_error", ["fail", "log"])
def test_values_without_metadata_are_known_by_the_ledger(view: View, on_error: str) -> None:
    """The ledger's checksum knows an object in another's place, even if all else agrees."""
    again = Restoring()
    keys = again.backup.put("orders", 0, range(10, 20), range(20, 30), views=SIBLINGS)
    again.entries = {"orders": [again.backup.entry(key) for key in keys]}
    first, second = [key for key in keys if again.backup.layout.parse(key).view is view]
    copy_over(again.backup, second, first, with_metadata=False)
    reading = ReadOptions()

    if on_error == "fail":
        with pytest.raises(CorruptObjectError, match="not the object that was stored") as caught:
            again.restore(topics="orders", reading=reading)
        assert first == caught.value.place["key"]
        assert not again.cluster.values("copy_of_orders")
    else:
        (report,) = again.restore(topics="orders", reading=reading, on_error=on_error)
        assert 1 == report.done.bad_objects
        assert values(range(20, 30)) == again.cluster.values("copy_of_orders")


def test_an_object_that_has_lost_its_metadata_is_restored() -> None:
    """An object that lost its metadata is restored, because the ledger vouches for it."""
    again = Restoring()
    (key,) = again.backup.put("orders", 0, range(10), views=JSON)
    again.entries = {"orders": [again.backup.entry(key)]}
    copy_over(again.backup, key, key, with_metadata=False)

    again.restore(topics="orders")

    assert values(range(10)) == again.cluster.values("copy_of_orders")


def test_values_of_another_topic_are_known_by_its_id() -> None:
    """Their rows and their names say nothing; the id that was stored with them does."""
    again = Restoring()
    keys = again.backup.put("orders", 0, range(10), range(10, 20), views=JSON)
    for key, topic_id in zip(keys, ("mine", "other"), strict=True):
        head = again.store.head(key)
        assert head is not None
        metadata = dict(head.metadata) | {"topic-id": topic_id}
        again.backup.replace(key, again.backup.body(key), metadata)

    with pytest.raises(CorruptObjectError, match="belongs to another topic"):
        again.restore()

    assert values(range(10)) == again.cluster.values("copy_of_orders")


def test_values_of_another_partition_are_known_by_their_metadata() -> None:
    """The name may agree with the copy's first offset, and the topic is the same."""
    again = Restoring()
    (key,) = again.backup.put("orders", 0, range(10), views=JSON)
    (other,) = again.backup.put("orders", 1, range(20), views=JSON)
    copy_over(again.backup, other, key)

    with pytest.raises(CorruptObjectError, match="written as partition 1"):
        again.restore(partitions="0")

    assert not again.cluster.values("copy_of_orders")


# Files that do not fit each other


@pytest.mark.parametrize("has_metadata", [True, False])
@pytest.mark.parametrize("rows", [2, 6])
def test_keys_that_do_not_fit_are_never_beside_values(rows: int, has_metadata: bool) -> None:
    """No record of such a set is written, whichever file has more rows."""
    again = Restoring()
    keys = again.backup.put("orders", 0, range(3), range(3, 6), views=SIBLINGS)
    (wrong,) = [key for key in keys if ".keys" in key and "0000000003" in key]
    lines = "".join(json.dumps(f"k{at}") + "\n" for at in range(rows)).encode()
    again.backup.replace(wrong, lines, None if has_metadata else {})
    if not has_metadata:
        for key in keys:
            again.backup.replace(key, again.backup.body(key), {})

    with pytest.raises(CorruptObjectError):
        again.restore()

    assert values(range(3)) == again.cluster.values("copy_of_orders")


def test_values_that_contain_the_separator_are_not_split_in_silence() -> None:
    """How many records there were is stored with the object; more rows are not records."""
    again = Restoring()
    again.backup.put("orders", 0, range(3), views=BYTES)
    again.backup.put("orders", 0, batch(range(3, 6), value=b"two\nlines"), views=BYTES)

    with pytest.raises(CorruptObjectError, match="it holds 6 records; 3 were stored"):
        again.restore(yes_split_on_newline=True)

    assert values(range(3)) == again.cluster.values("copy_of_orders")


def test_values_without_metadata_are_counted_by_the_ledger() -> None:
    """What the ledger has counted needs no consent; what it has counted fewer of is not split."""
    again = Restoring()
    (key,) = again.backup.put("orders", 0, range(3), views=BYTES)
    (split,) = again.backup.put("orders", 0, batch(range(3, 6), value=b"two\nlines"), views=BYTES)
    again.entries = {"orders": [again.backup.entry(key), again.backup.entry(split)]}
    copy_over(again.backup, key, key, with_metadata=False)
    copy_over(again.backup, split, split, with_metadata=False)

    with pytest.raises(CorruptObjectError, match="it holds 6 records; 3 were stored"):
        again.restore(topics="orders")

    assert values(range(3)) == again.cluster.values("copy_of_orders")


def test_keys_of_another_tool_are_split_only_with_consent() -> None:
    """Keys of another tool are split only if the operator confirms it."""
    again = Restoring()
    for key in again.backup.put("orders", 0, range(3), views=KEYED_BYTES):
        again.backup.replace(key, again.backup.body(key), {})

    with pytest.raises(RefusedError, match=r"\.keys\.bin may hold keys that contain"):
        again.restore()
    again.restore(yes_split_on_newline=True, reading=ReadOptions(key_converter="bytes"))

    assert values(range(3)) == again.cluster.values("copy_of_orders")


def test_a_file_without_records_is_no_object_of_ours() -> None:
    """An object that gives nothing is not taken for one that had nothing to give."""
    again = Restoring()
    keys = again.backup.put("orders", 0, range(3), range(3, 6), views=RECORD)
    form = RECORD[0].open_format()
    again.backup.replace(keys[1], write(form, View.RECORD, []), {})

    with pytest.raises(CorruptObjectError, match="it holds no records"):
        again.restore()
