"""A group that somebody has set back, over objects of values, which do not store offsets."""

import gzip
import json
from collections import Counter
from dataclasses import replace
from typing import Any, Final

import pytest

from kbackup.clock import SystemClock
from kbackup.errors import StoreError
from kbackup.inspect.peek import peek
from kbackup.naming import Layout
from kbackup.naming.renaming import TopicFilter
from kbackup.pipeline.views import ReadOptions
from kbackup.records import Span
from kbackup.runs import backup_state
from kbackup.runs.backup_state import read_topics
from kbackup.stores.memory import MemoryStore
from tests.support.bench import WHERE, Bench, leave_to_another_tool


@pytest.mark.parametrize("size", [3, 20, 1000], ids=["smaller", "the same", "larger"])
@pytest.mark.parametrize("offset", [0, 7, 20, 31, 40, 45, 46])
def test_values_are_stored_once_wherever_the_group_is_set_to(offset: int, size: int) -> None:
    """Into an object, before a short last one, with another flush.size: the objects stay."""
    bench = Bench(45)
    bench.sink(20)  # 0, 20, and a short 40
    bench.kafka.append(WHERE, 16)
    bench.sink(20)  # 45
    before = bench.rows()
    assert [0, 20, 40, 45] == sorted(before)
    bench.set_back(offset)
    bench.kafka.append(WHERE, 4)

    summary = bench.sink(size)

    assert (0, 65) == (summary["exit_code"], bench.position)
    assert not bench.doubled()
    assert before.items() <= bench.rows().items()
    assert set(range(65)) == {number for rows in bench.rows().values() for number in rows}


@pytest.mark.parametrize("layout", [{}, {"format_class": None}], ids=["values", "whole"])
def test_a_group_that_was_moved_ahead_with_its_metadata_leaves_no_hole(
    layout: dict[str, None],
) -> None:
    """What moves a group may keep the text beside its offset: it says which offset it was of."""
    bench = Bench(40)
    bench.sink(20, **layout)
    bench.kafka.append(WHERE, 30)
    bench.kafka.positions_[WHERE] = replace(bench.kafka.positions_[WHERE], offset=60)

    summary = bench.sink(20, **layout)

    assert ["bucket_behind"] == [one["code"] for one in summary["warnings"]]
    assert (0, 70, {0, 20, 40, 60}) == (summary["exit_code"], bench.position, bench.starts())


@pytest.mark.parametrize("partitioner", ["default", "modulo"])
def test_an_earlier_position_does_not_hold_for_its_object_once_that_has_grown(
    partitioner: str,
) -> None:
    """Its object was lost and stored again with more records: these lie behind the position."""
    bench = Bench(4)
    options = {"partitioner_class": partitioner}
    bench.sink(20, **options)
    earlier = bench.kafka.positions_[WHERE]
    for one in list(bench.store.list("topics/orders/")):
        bench.store.delete(one.key)
    bench.kafka.append(WHERE, 6)
    bench.sink(20, **options)
    before = bench.rows()
    bench.kafka.positions_[WHERE] = earlier

    summary = bench.sink(20, **options)

    assert (0, 10, before) == (summary["exit_code"], bench.position, bench.rows())
    assert not bench.doubled()


@pytest.mark.parametrize("keeps_group", [True, False], ids=["group", "no group"])
def test_what_expired_after_the_bucket_was_emptied_by_hand_is_a_gap(*, keeps_group: bool) -> None:
    """A run begins anew where the log begins, and names what neither log nor bucket has."""
    bench = Bench(60)
    bench.sink(20)
    for one in list(bench.store.list("topics/orders/")):
        bench.store.delete(one.key)
    bench.kafka.logs[WHERE] = Span(30, 60)
    if not keeps_group:
        bench.kafka.positions_.clear()

    summary = bench.sink(20)

    assert (3, 60, {30, 50}) == (summary["exit_code"], bench.position, bench.starts())
    assert {"expired_offsets": 30} == summary["skipped"]
    assert 0 == bench.sink(20)["exit_code"]


JSON: Final = {"format_class": "json"}
GZIP: Final = {"format_class": "json", "s3_compression_type": "gzip"}
RECORD: Final = {"format_class": None}


@pytest.mark.parametrize("offset", [0, 20, 30, 40, 60])
@pytest.mark.parametrize(
    ("before", "now"),
    [(JSON, GZIP), (GZIP, JSON), (JSON, RECORD), (RECORD, JSON)],
    ids=["gzip", "plain", "to full records", "from full records"],
)
def test_a_format_may_change_where_the_group_is_and_no_row_of_values_is_stored_twice(
    before: dict[str, Any], now: dict[str, Any], offset: int
) -> None:
    """It goes on; from an object's end, or inside full records; inside values it is refused."""
    bench = Bench(60)
    bench.sink(20, **before)
    bench.set_back(offset)
    bench.kafka.append(WHERE, 10)

    summary = bench.sink(20, **now)

    is_inside = offset == 30
    if is_inside and now is not RECORD:
        assert (4, 30, {0, 20, 40}) == (summary["exit_code"], bench.position, bench.starts())
        assert "set the group's offset to the end of a rotation" in summary["errors"][0]["do"]
    else:
        first = {30, 50} if is_inside else {60}
        assert (0, 70) == (summary["exit_code"], bench.position)
        assert {0, 20, 40} | first == bench.starts()
        codes = [] if offset in (30, 60) else ["group_behind"]
        assert codes == [one["code"] for one in summary["warnings"] if "group" in one["code"]]


@pytest.mark.parametrize("format_class", ["json", None], ids=["values", "whole"])
@pytest.mark.parametrize("partitioner", ["default", "modulo"])
def test_two_groups_that_back_up_in_turns_store_no_row_twice(
    format_class: str | None, partitioner: str
) -> None:
    """A position is confirmed only where nothing of another run lies behind it."""
    bench = Bench(0)
    options = {"format_class": format_class, "partitioner_class": partitioner}
    groups: dict[str, Any] = {"one": {}, "other": {}}
    codes = []
    for group, count in (("one", 23), ("other", 15), ("one", 15), ("other", 8), ("one", 9)):
        bench.kafka.positions_ = groups[group]
        bench.kafka.append(WHERE, count)
        codes.append(bench.sink(10, **options)["exit_code"])

    assert [0] * 5 == codes
    assert 70 == bench.position
    if format_class:
        stored = Counter(number for rows in bench.objects().values() for number in rows)
        assert Counter(range(70)) == stored


@pytest.mark.parametrize(
    ("options", "first"),
    [
        ({"format_class": "block_gzip"}, 0),
        ({"filename_offset_zero_pad_width": 1, **GZIP}, 0),
        (GZIP, 9_999_999_990),
    ],
    ids=["dates of upload", "offsets of any width", "eleven digits"],
)
def test_two_groups_in_turns_store_no_row_twice_whatever_names_say(
    options: dict[str, Any], first: int
) -> None:
    """What follows an object is found where names are not in the order of offsets."""
    bench = Bench(0)
    bench.kafka.logs[WHERE] = Span(first, first)
    groups: dict[str, Any] = {"one": {}, "other": {}}
    codes = []
    for group, count, size in (("one", 10, 5), ("other", 15, 4), ("one", 8, 5), ("other", 9, 4)):
        bench.kafka.positions_ = groups[group]
        bench.kafka.append(WHERE, count)
        codes.append(bench.sink(size, **options)["exit_code"])

    lines = list[bytes]()
    for one in bench.store.list("topics/"):
        if one.key.endswith(".gz"):
            with bench.store.open(one.key) as body:
                lines += gzip.decompress(body.read()).splitlines()
    assert ([0] * 4, first + 42) == (codes, bench.position)
    assert [1] * 42 == [*Counter(lines).values()]


@pytest.mark.parametrize("is_first", [True, False], ids=["first", "second"])
@pytest.mark.parametrize(
    "other",
    [{"partitioner_class": "modulo"}, {"filename_offset_zero_pad_width": 12}],
    ids=["several directories", "more digits"],
)
def test_two_groups_that_name_objects_differently_store_no_row_twice(
    other: dict[str, Any], *, is_first: bool
) -> None:
    """A listing behind one group's objects does not show the other's, but the ledger does."""
    bench = Bench(0)
    groups: dict[str, Any] = {"one": {}, "other": {}}
    options = {"one": other if is_first else {}, "other": {} if is_first else other}
    codes = []
    for group, count in (("one", 10), ("other", 15), ("one", 8), ("other", 9)):
        bench.kafka.positions_ = groups[group]
        bench.kafka.append(WHERE, count)
        codes.append(bench.sink(5, **options[group])["exit_code"])

    stored = Counter(number for rows in bench.objects().values() for number in rows)
    assert ([0] * 4, 42) == (codes, bench.position)
    assert Counter(range(42)) == stored


def test_a_run_that_stops_on_its_way_back_is_continued_with_the_same_cuts() -> None:
    """A position on the way says that what follows it is stored a second time."""
    bench = Bench(60)
    bench.sink(20)
    before = bench.rows()
    bench.set_back(1)
    bench.kafka.append(WHERE, 1)
    whole, bench.kafka.logs[WHERE] = bench.kafka.logs[WHERE], Span(0, 60)
    read = bench.kafka.values
    read[WHERE, 25] = b"no JSON"
    assert 1 == bench.sink(7)["exit_code"]
    assert 20 == bench.position
    del read[WHERE, 25]
    bench.kafka.logs[WHERE] = whole

    assert 0 == bench.sink(7)["exit_code"]

    assert {**before, 60: [60]} == bench.rows()


def test_the_log_has_lost_the_beginning_of_a_cut_that_is_whole() -> None:
    """If a whole cut is stored and the log has lost its beginning, it goes on after the cut."""
    bench = Bench(60)
    bench.sink(20)
    before = bench.rows()
    bench.set_back(0)
    bench.kafka.logs[WHERE] = Span(27, 61)

    summary = bench.sink(20)

    assert 0 == summary["exit_code"]
    assert {**before, 60: [60]} == bench.rows()
    assert ["group_behind"] == [one["code"] for one in summary["warnings"]]


def test_objects_that_would_have_other_names_are_refused() -> None:
    """With another partitioner, values would be in two objects: exit 4 names the offsets."""
    bench = Bench(40)
    bench.sink(20)
    before = bench.rows()
    bench.set_back(5)

    summary = bench.sink(20, partitioner_class="field", partition_field_name="n")

    assert 4 == summary["exit_code"]
    (error,) = summary["errors"]
    assert "offsets 0 to 19" in error["what"]
    assert "set the group's offset to the end of a rotation, such as 20" in error["do"]
    assert before == bench.rows()


def test_a_topic_that_has_grown_is_entered_though_one_partition_is_refused() -> None:
    """What a run stores of a new partition is the topic's, whatever it says of another."""
    bench = Bench(40)
    bench.sink(20)
    bench.set_back(5)
    bench.kafka.create("orders", 10)

    summary = bench.sink(20, s3_compression_type="gzip")

    assert 4 == summary["exit_code"]
    found = read_topics(bench.store, Layout(), SystemClock())
    assert 2 == found.topics["orders"].partitions


@pytest.mark.parametrize("has_group", [True, False], ids=["confirmed", "by the ledger"])
@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"file_delim": "-"}, id="another delimiter"),
        pytest.param({"format_class": "block_gzip", "value_converter": "bytes"}, id="block-gzip"),
    ],
)
def test_a_topic_is_not_stored_in_two_layouts(other: dict[str, str], *, has_group: bool) -> None:
    """A restore reads one layout at a time: it would bring back a part of the topic, and say so."""
    bench = Bench(40)
    bench.sink(20)
    bench.kafka.append(WHERE, 20)
    if not has_group:
        bench.kafka.positions_.clear()
    before = bench.rows()

    summary = bench.sink(20, **other)

    assert [(4, "refused")] == [(error["exit_code"], error["code"]) for error in summary["errors"]]
    assert "choose another topics.dir" in summary["errors"][0]["do"]
    assert before == bench.rows()
    assert 0 == bench.sink(20)["exit_code"]


def test_what_is_missing_is_stored_again_between_what_is_there() -> None:
    """Set back to a deleted object, its records are stored by today's rules, neighbours stay."""
    bench = Bench(60)
    bench.sink(20)
    before = bench.rows()
    (gone,) = (one.key for one in bench.store.list("topics/") if "+0000000020" in one.key)
    bench.store.delete(gone)
    bench.set_back(20)

    summary = bench.sink(12)

    assert 0 == summary["exit_code"]
    del before[20]
    parts = {20: list(range(20, 32)), 32: list(range(32, 40))}
    assert {**before, **parts} == bench.rows()


@pytest.mark.parametrize("size", [7, 20, 1000], ids=["smaller", "the same", "larger"])
def test_a_cut_with_nothing_after_its_last_record_takes_its_old_place(size: int) -> None:
    """The log ends in markers: a group set back writes the same objects, and comes to the end."""
    bench = Bench(30)
    nothing = {"behavior_on_null_values": "ignore"}
    bench.kafka.values[WHERE, 29] = None
    bench.sink(20, **nothing)  # 0 to 19; 20 to 28, up to 30
    bench.kafka.append(WHERE, 2)
    bench.kafka.values |= {(WHERE, 30): None, (WHERE, 31): None}
    bench.sink(20, **nothing)  # nothing, up to 32
    before = bench.rows()
    assert ([0, 20], 32) == (sorted(before), bench.position)
    bench.set_back(0)

    summary = bench.sink(size, **nothing)

    assert (0, 32) == (summary["exit_code"], bench.position)
    assert before == bench.rows()
    bench.set_back(25)
    bench.kafka.append(WHERE, 3)
    assert (0, 35) == (bench.sink(size, **nothing)["exit_code"], bench.position)
    assert {**before, 32: [32, 33, 34]} == bench.rows()


def test_a_smaller_flush_size_after_a_run_that_died_stores_no_row_twice() -> None:
    """What it had stored and not entered is written again as it is."""
    bench = Bench(20)
    bench.sink(20)
    noted = {
        one.key: bench.store.open(one.key).read() for one in bench.store.list("_kbackup/ledger/")
    }
    position = bench.kafka.positions_[WHERE]
    bench.kafka.append(WHERE, 25)
    bench.sink(20)
    for one in [*bench.store.list("_kbackup/ledger/")]:
        if one.key not in noted:
            bench.store.delete(one.key)
    bench.kafka.positions_[WHERE] = position
    before = bench.rows()

    again = bench.sink(3)

    assert (0, 45) == (again["exit_code"], bench.position)
    assert (before, set()) == (bench.rows(), bench.doubled())


@pytest.mark.parametrize("offset", [0, 7, 13])
def test_a_group_that_is_set_back_over_another_tool_s_directories_is_refused(offset: int) -> None:
    """Its objects do not say where they end, so no row is stored twice by guess."""
    bench = Bench(20)
    bench.sink(10, partitioner_class="modulo")
    leave_to_another_tool(bench.store)
    bench.set_back(20)
    bench.kafka.append(WHERE, 10)
    taken_over = bench.sink(10, partitioner_class="modulo")
    before = bench.rows()
    bench.set_back(offset)
    bench.kafka.append(WHERE, 3)

    refused = bench.sink(3, partitioner_class="modulo")
    bench.set_back(30)
    goes_on = bench.sink(3, partitioner_class="modulo")

    assert (0, 4, 0) == (taken_over["exit_code"], refused["exit_code"], goes_on["exit_code"])
    assert "several directories" in refused["errors"][0]["why"]
    assert before.items() <= bench.rows().items()
    assert not bench.doubled()


@pytest.mark.parametrize("offset", [0, 6, 7, 10, 13])
@pytest.mark.parametrize("size", [3, 5, 10, 15])
def test_without_a_ledger_no_row_of_another_tool_s_directories_is_stored_twice(
    offset: int, size: int
) -> None:
    """A first run over them refuses, unless it is shown that the same objects are written."""
    bench = Bench(20)
    bench.sink(10, partitioner_class="modulo")
    leave_to_another_tool(bench.store)
    before = bench.rows()
    bench.set_back(offset)
    bench.kafka.append(WHERE, 13)

    summary = bench.sink(size, partitioner_class="modulo")

    assert not bench.doubled()
    is_same = (offset, size) in {(0, 10), (10, 10), (10, 15)}
    assert (0 if is_same else 4) == summary["exit_code"]
    if not is_same:
        assert before == bench.rows()
        assert "several directories" in summary["errors"][0]["why"]


def shown(bench: Bench) -> list[int]:
    """The numbers of the records that a restore would write, in order of numbers."""
    said = backup_state.read(bench.store, Layout(), SystemClock(), TopicFilter(["orders"]))
    found = peek(bench.store, Layout(), ReadOptions(), "orders", count=1000, known=said)
    return sorted(json.loads(str(one["payload"]))["n"] for one in found)


@pytest.mark.parametrize("is_lost", [False, True], ids=["ledger", "no ledger"])
@pytest.mark.parametrize("keeps_group", [True, False], ids=["group", "no group"])
@pytest.mark.parametrize(
    ("before", "now"),
    [(JSON, GZIP), (GZIP, JSON), (JSON, RECORD), (RECORD, JSON)],
    ids=["gzip", "plain", "to full records", "from full records"],
)
@pytest.mark.parametrize(
    "deaths",
    [
        pytest.param(range(1, 5), id="within two cuts"),  # of three objects each
        pytest.param(range(5, 12), id="later", marks=pytest.mark.nightly),
    ],
)
def test_a_format_may_change_where_a_run_died_within_a_cut_of_several_directories(
    deaths: range,
    before: dict[str, Any],
    now: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    *,
    keeps_group: bool,
    is_lost: bool,
) -> None:
    """Each record is backed up once, or the sink refuses until it has the cut's own format."""
    codes = set()
    for stored in deaths:
        bench = Bench(35)
        die_after(monkeypatch, stored)
        bench.sink(10, partitioner_class="modulo", **before)
        monkeypatch.undo()
        bench.kafka.append(WHERE, 8)
        if is_lost:
            for one in [*bench.store.list("_kbackup/")]:
                bench.store.delete(one.key)
        if not keeps_group:
            bench.kafka.positions_.clear()

        summary = bench.sink(10, partitioner_class="modulo", **now)
        codes.add(summary["exit_code"])
        if summary["exit_code"]:
            summary = bench.sink(10, partitioner_class="modulo", **before)
        again = bench.sink(10, partitioner_class="modulo", **now)

        assert (0, 0) == (summary["exit_code"], again["exit_code"]), stored
        assert [*range(43)] == shown(bench), stored
    assert codes <= {0, 4}


def die_after(monkeypatch: pytest.MonkeyPatch, objects: int) -> None:
    """Let a store take so many objects, and nothing after them."""
    put, left = MemoryStore.put, [objects]

    def limited(store: MemoryStore, key: str, *given: Any, **named: Any) -> bool:
        if left[0] <= 0:
            raise StoreError(f"{key} cannot be stored")
        left[0] -= key.startswith("topics/")
        return put(store, key, *given, **named)

    monkeypatch.setattr(MemoryStore, "put", limited)
