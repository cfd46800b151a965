"""What the ledger costs, and what it says when some of it is damaged."""

import io
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from itertools import permutations
from typing import Any, BinaryIO
from uuid import uuid4

import pyarrow as pa
import pytest

from kbackup.catalog.coverage import Holding, Offsets, entered
from kbackup.catalog.groups import GROUPS, GroupEntry
from kbackup.catalog.ledger.rows import (
    ACCEPTED,
    GAP,
    KEPT,
    OBJECTS,
    PASSED,
    REMOVED,
    TOPICS,
    Entry,
    StreamForm,
    TopicEntry,
    TopicLedger,
    entries,
    of_object,
    ranged,
    table,
    topic_entries,
)
from kbackup.catalog.ledger.stream import (
    FOLD_AT,
    GRACE_MS,
    Contents,
    Stream,
    encoded,
    new_name,
    topic_stream,
    topics_stream,
)
from kbackup.catalog.translated import TRANSLATED, TranslatedEntry
from kbackup.errors import CorruptObjectError, NewerVersionError
from kbackup.naming import Layout
from kbackup.records import Span, TopicPartition
from kbackup.stores import StoredObject, StoreSettings, put_bytes
from kbackup.stores.memory import MemoryStore
from tests.support.hand_clock import HandClock

NOW = 1_800_000_000_000
MINUTE = 60_000
DAY = 1440 * MINUTE
WHERE = TopicPartition("orders", 0)


class CountingStore(MemoryStore):
    """Counts what S3 would charge for: a listing costs a request for each page of 1,000."""

    def __init__(self) -> None:
        super().__init__(StoreSettings(f"memory://{uuid4()}"))
        self.requests: Counter[str] = Counter()

    def put(self, key: str, body: BinaryIO, *, sha256: str, metadata: Mapping[str, str],
            if_absent: bool = False, if_match: str | None = None) -> bool:  # fmt: skip
        self.requests["put"] += 1
        return super().put(
            key, body, sha256=sha256, metadata=metadata, if_absent=if_absent, if_match=if_match
        )

    def open(self, key: str) -> BinaryIO:
        self.requests["open"] += 1
        return super().open(key)

    def list(self, prefix: str, *, after: str = "") -> Iterator[StoredObject]:
        for number, entry in enumerate(super().list(prefix, after=after)):
            if number % 1000 == 0:
                self.requests["list"] += 1
            yield entry


def stream(store: MemoryStore, time: HandClock) -> Stream:
    """The stream of ``orders``."""
    return topic_stream(store, Layout(), "orders", time)


def row(offset: int, records: int = 10, **more: Any) -> Entry:
    """The row of an object of partition 0."""
    last = offset + records - 1
    return Entry("object", 0, offset, last, f"key-{offset}", records=records, sha256="0", **more)


def test_the_cost_does_not_grow_with_the_number_of_runs() -> None:
    """After 10,000 runs all is known after one page and 64 reads; older parts are never opened."""
    store, time = CountingStore(), HandClock(NOW)
    ledger = stream(store, time)
    runs, recent = 10_000, FOLD_AT - 1
    for run in range(runs - recent):  # never to be opened: they hold nothing
        name = f"{ledger.prefix}{9_999_999_999_999 - NOW - run * 15 * MINUTE}-{run:016x}.parquet"
        MemoryStore.put(store, name, io.BytesIO(b""), sha256="", metadata={})
    time.at_ms = NOW + (runs - recent) * 15 * MINUTE
    old = table([row(10 * at) for at in range(10 * (runs - recent))], OBJECTS)
    ledger.rewrite(lambda _: old)
    for run in range(runs - recent, runs):
        time.at_ms += 15 * MINUTE
        ledger.append(table([row(10 * at) for at in range(10 * run, 10 * run + 10)], OBJECTS))
    store.requests.clear()

    found = ledger.read()

    assert 100_000 == len(found.rows)
    assert {"list": 1, "open": FOLD_AT} == dict(store.requests)


def test_what_was_folded_is_not_opened_again() -> None:
    """Folded parts are not opened again, even within the grace period."""
    store, time = CountingStore(), HandClock(NOW)
    ledger = stream(store, time)
    for at in range(200):
        time.at_ms += 1000
        ledger.append(table([row(10 * at)], OBJECTS))
    assert ledger.fold()
    time.at_ms += 1000
    ledger.append(table([row(5000)], OBJECTS))
    store.requests.clear()

    found = ledger.read()

    assert (201, 1) == (len(found.rows), found.loose)
    assert {"list": 1, "open": 2} == dict(store.requests)
    assert not ledger.fold()


def test_who_has_read_a_stream_opens_nothing_until_it_grows() -> None:
    """Also by a part that another writer has begun earlier, and a snapshot that says no more."""
    store, time = CountingStore(), HandClock(NOW)
    some = stream(store, time)
    seen: Collection[str] = ()

    def read() -> list[int] | None:
        nonlocal seen
        store.requests.clear()
        if (found := some.read_if_new(seen)) is None:
            assert {"list": 1} == store.requests
            return None
        seen = found[0]
        return sorted(each.first for each in entries(found[1].rows))

    some.append(table([row(0)], OBJECTS))
    assert [0] == read()
    assert None is read()
    late = encoded(table([row(10)], OBJECTS), OBJECTS.schema, {})
    put_bytes(store, some.prefix + new_name(NOW - MINUTE), late)
    assert [0, 10] == read()
    time.pass_s(2 * GRACE_MS / 1000)
    some.append(table([row(20)], OBJECTS))
    assert some.fold(1)
    assert [0, 10, 20] == read()
    assert None is read()


@pytest.mark.parametrize("damage", [b"PAR1 no more", None], ids=["cut", "no UTF-8"])
def test_a_damaged_part_is_reported_and_the_others_are_used(damage: bytes | None) -> None:
    """A damaged part is reported until the ledger is rebuilt; later folds do not forget it."""
    store, time = CountingStore(), HandClock(NOW)
    ledger = stream(store, time)
    for at in range(3):
        time.at_ms += 1
        ledger.append(table([row(10 * at)], OBJECTS))
    broken = [entry.key for entry in store.list(ledger.prefix)][1]
    body = damage or store.open(broken).read().replace(b"key-10", b"key-1\xff")
    store.put(broken, io.BytesIO(body), sha256="", metadata={})

    before = ledger.read()
    ledger.fold(1)
    time.at_ms += 2 * GRACE_MS
    ledger.append(table([row(990)], OBJECTS))
    ledger.fold(1)
    after = ledger.read()

    assert {0, 20} == {entry.first for entry in entries(before.rows)}
    assert {0, 20, 990} == {entry.first for entry in entries(after.rows)}
    assert [broken] == [one.what for one in before.damage] == [one.what for one in after.damage]


def test_too_little_memory_is_no_damage() -> None:
    """A part that there is no memory for is not damaged: nothing is judged without its rows."""

    class Big(io.BytesIO):
        def read(self, _: int | None = -1, /) -> bytes:
            raise pa.ArrowMemoryError("malloc of size 4096 failed")

    class Small(MemoryStore):
        def open(self, key: str) -> BinaryIO:
            return Big(super().open(key).read())

    ledger = stream(Small(StoreSettings(f"memory://{uuid4()}")), HandClock(NOW))
    ledger.append(table([row(0)], OBJECTS))

    with pytest.raises(MemoryError):
        ledger.read()


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(encoded(table([], OBJECTS), OBJECTS.schema, {}), id="no metadata"),
        pytest.param(
            encoded(table([], OBJECTS), OBJECTS.schema, {b"kbackup.holds": "{"}), id="no JSON"
        ),
    ],
)
def test_a_damaged_snapshot_costs_nothing_but_time(body: bytes) -> None:
    """A damaged snapshot is replaced by the one before it and all parts since."""
    store, time = CountingStore(), HandClock(NOW)
    ledger = stream(store, time)
    for at in range(6):
        time.at_ms += 40 * MINUTE
        ledger.append(table([row(10 * at)], OBJECTS))
        if at % 2:
            ledger.fold(1)
    newest = next(entry.key for entry in store.list(ledger.prefix) if "snapshot" in entry.key)
    store.put(newest, io.BytesIO(body), sha256="", metadata={})

    found = ledger.read()

    assert {0, 10, 20, 30, 40, 50} == {entry.first for entry in entries(found.rows)}
    assert [newest] == [one.what for one in found.damage]


def test_a_snapshot_of_the_future_is_not_believed() -> None:
    """A snapshot dated in the future is ignored, so it hides nothing written before then."""
    store, time = CountingStore(), HandClock(NOW)
    time.at_ms = NOW + 72 * 60 * MINUTE
    stream(store, time).append(table([row(0)], OBJECTS))
    stream(store, time).fold(1)
    time.at_ms = NOW
    ledger = stream(store, time)
    ledger.append(table([row(10)], OBJECTS))

    assert {0, 10} == {entry.first for entry in entries(ledger.read().rows)}


def test_no_row_is_written_behind_the_highest_name() -> None:
    """A name that nothing can follow is reported: what came after it, nobody would read."""
    store = CountingStore()
    ledger = stream(store, HandClock(NOW))
    body = encoded(table([row(0)], OBJECTS), OBJECTS.schema, {})
    name = f"{ledger.prefix}{0:013d}-{1:016x}.parquet"
    store.put(name, io.BytesIO(body), sha256="", metadata={})

    with pytest.raises(CorruptObjectError, match="no row can follow it"):
        ledger.append(table([row(10)], OBJECTS))

    assert [name] == [entry.key for entry in store.list(ledger.prefix)]


def test_a_later_version_is_read_by_that_version_alone() -> None:
    """A file of a later version ends the command: its rows are neither guessed nor left out."""
    store, time = CountingStore(), HandClock(NOW)
    ledger = stream(store, time)
    later = {b"kbackup.ledger": "2", b"kbackup.version": "7.1"}
    body = encoded(table([row(0)], OBJECTS), OBJECTS.schema, later)
    name = f"{ledger.prefix}{9_999_999_999_999 - NOW}-{1:016x}.parquet"
    store.put(name, io.BytesIO(body), sha256="", metadata={})

    for ask in (
        ledger.read,
        ledger.check_version,
        lambda: ledger.fold(1),
        lambda: ledger.rewrite(lambda there: there.rows),
    ):
        with pytest.raises(NewerVersionError) as raised:
            ask()

        assert raised.value.exit_code == 2
        assert name in raised.value.what
        assert raised.value.do == (
            "use kbackup 7.1 or later; if no kbackup wrote it, move it away: records are restored "
            "without it, and kbackup sink reindex rebuilds the ledger"
        )


def test_rows_of_unknown_kinds_say_nothing() -> None:
    """What a later version adds beside what there is, is counted, and stands for no object."""
    rows = [row(0), replace(row(10), kind="digest"), replace(row(20), kind="capture", key=None)]

    found = TopicLedger.of(rows)

    assert (1, 2) == (len(found.partition(0).objects), found.unknown)


def test_a_rewritten_ledger_counts_for_what_came_before() -> None:
    """A ledger that was rewritten counts for all before it, and later parts are added to it."""
    store, time = CountingStore(), HandClock(NOW)
    ledger = stream(store, time)
    ledger.append(table([row(0), row(10)], OBJECTS))
    time.at_ms += 1
    ledger.rewrite(lambda _: table([row(10)], OBJECTS))
    time.at_ms += 1
    ledger.append(table([row(20)], OBJECTS))

    assert {10, 20} == {entry.first for entry in entries(ledger.read().rows)}


def test_what_is_appended_while_a_ledger_is_rewritten_still_counts() -> None:
    """Rows that a sink appends during a rewrite are kept, whatever it folds."""
    store, time = CountingStore(), HandClock(NOW)
    ledger = stream(store, time)
    ledger.append(table([row(0)], OBJECTS))

    def make(_: Contents) -> pa.Table:
        time.at_ms += 1
        ledger.append(table([row(10)], OBJECTS))
        ledger.fold(1)
        time.at_ms += 1
        return table([row(20)], OBJECTS)

    ledger.rewrite(make)

    assert {10, 20} == {entry.first for entry in entries(ledger.read().rows)}


def became(rows: Sequence[Entry], present: Collection[str]) -> Offsets:
    """What became of the offsets of full records, by ledger and listing."""
    named = [
        Holding(key, "", one.first, is_full=True)
        for one in rows
        if (key := one.key or "") in present
    ]
    return entered(named, TopicLedger.of(rows).partition(0), present)


@pytest.mark.parametrize(
    ("present", "end"),
    [
        ({"a", "b", "c"}, 30),
        ({"a", "b"}, 20),
        ({"b", "c"}, 30),
        ({"c"}, 30),
        ({"a"}, None),
        (set(), None),
    ],
)
def test_the_backup_goes_on_after_the_last_cut_that_is_whole(
    present: set[str], end: int | None
) -> None:
    """A backup continues after the last cut whose files are all there."""
    rows = [
        Entry("object", 0, 0, 18, "a", "record", cut_start=0, next_offset=20),
        Entry("object", 0, 1, 19, "b", "record", cut_start=0, next_offset=20),
        Entry("object", 0, 20, 29, "c", "record", cut_start=20, next_offset=30),
    ]
    if present == {"a", "b"}:
        rows.append(Entry("object", 0, 20, 29, "d", "record", cut_start=20, next_offset=30))

    assert end == became(rows, present).end


@pytest.mark.parametrize(
    ("present", "kept"),
    [
        pytest.param("abc", [(0, 30), (40, 50)], id="all of it"),
        pytest.param("ac", [(20, 30), (40, 50)], id="half a cut"),
        pytest.param("ab", [(0, 20), (40, 50)], id="a whole cut"),
        pytest.param("", [(40, 50)], id="nothing"),
    ],
)
def test_what_a_backup_keeps_is_whole_cuts_and_known_gaps(
    present: str, kept: list[tuple[int, int]]
) -> None:
    """An offset is vouched for if no object of its cut is missing, with a record or without."""
    rows = [
        Entry("object", 0, 0, 18, "a", "record", cut_start=0, next_offset=20),
        Entry("object", 0, 1, 17, "b", "record", cut_start=0, next_offset=20),
        Entry("object", 0, 20, 28, "c", "record", cut_start=20, next_offset=30),
        Entry("object", 0, 30, 39, "adopted, and nobody knows its cut", "record"),
        ranged(GAP, WHERE, Span(40, 50), "r", 1),
    ]

    found = became(rows, {*present, "adopted, and nobody knows its cut"})

    assert kept == [(s.start_offset, s.end_offset) for s in found.whole]


def test_a_cut_whose_records_are_all_there_again_keeps_nothing_back() -> None:
    """An object that is gone is missed by nobody where others hold each of its offsets."""
    rows = [
        Entry("object", 0, 0, 9, "gone", "record", 10, cut_start=0, next_offset=10),
        Entry("object", 0, 0, 14, "adopted again", "record", 15),
        Entry("object", 0, 15, 19, "next", "record", 5, cut_start=15, next_offset=20),
    ]

    found = became(rows, {"adopted again", "next"})

    assert ([], (Span(0, 20),), 20) == ([*found.said.missing], found.whole, found.end)


def test_the_backup_goes_on_after_a_gap() -> None:
    """A first backup that met only expired records leaves no object, and knows where it stood."""
    expired = ranged(GAP, WHERE, Span(0, 4), "r", 1)

    assert 4 == became([expired], set()).end


@pytest.mark.parametrize(
    ("again", "present", "expected"),
    [
        pytest.param([(5, 10), (15, 10)], {"key-5", "key-15", "key-0"}, [], id="all of them"),
        pytest.param([(5, 10), (15, 10)], {"key-5", "key-0"}, [10, 15], id="not all of them"),
        pytest.param([(5, 10), (16, 9)], {"key-5", "key-16", "key-0"}, [10], id="but for one"),
    ],
)
def test_what_was_backed_up_again_under_other_keys_is_not_missing(
    again: list[tuple[int, int]], present: set[str], expected: list[int]
) -> None:
    """An object counts as there where others hold each of its offsets."""
    rows = [row(0), row(10), *(row(first, count) for first, count in again)]

    found = TopicLedger.of(rows).partition(0).missing(present)

    assert expected == [entry.first for entry in found]


def test_an_object_that_has_holes_stands_for_no_other() -> None:
    """An object is missed even if its records stand elsewhere: it may have had one more."""
    holed = Entry("object", 0, 5, 24, "holed", records=15, sha256="0")

    found = TopicLedger.of([row(10), holed]).partition(0).missing({"holed"})

    assert ["key-10"] == [entry.key for entry in found]


def test_what_was_removed_on_purpose_is_not_missed_until_it_is_stored_again() -> None:
    """What was removed on purpose is not missed, until it is stored again and lost again."""
    stored = [row(0, time=1), row(10, time=1), row(20, time=1)]
    agreed = [of_object(ACCEPTED, stored[0], "v", 5)]
    expired = ranged(GAP, WHERE, Span(40, 50), "r", 1)
    ledger = TopicLedger.of([*stored, *agreed, expired]).partition(0)

    assert ["key-10"] == [entry.key for entry in ledger.missing({"key-20"})]
    assert [Span(40, 50)] == ledger.gaps
    again = TopicLedger.of([row(0, run="later"), *agreed]).partition(0)
    assert ["key-0"] == [entry.key for entry in again.missing(set())]


@pytest.mark.parametrize(
    ("said", "records"),
    [((), 10), ((REMOVED,), 3), ((ACCEPTED,), 3), ((REMOVED, KEPT), 10)],
    ids=["nothing", "removed", "accepted", "taken back"],
)
def test_what_is_stored_again_after_a_removal_counts_however_short(
    said: Sequence[str], records: int
) -> None:
    """Objects only grow, but one that was removed on purpose begins anew, in any order of parts."""
    first, again = row(0, run="one"), row(0, records=3, run="two")
    parts = [first, first, *(of_object(kind, first, "by", NOW) for kind in said), again]
    parts += [of_object(kind, again, "by", NOW) for kind in said]
    numbers = [None, *range(len(parts) - 1)]  # what was rebuilt has none
    entered = [replace(one, counter=number) for number, one in zip(numbers, parts, strict=True)]

    for some in permutations(entered):
        merged = OBJECTS.merged(table(some, OBJECTS))
        again_read = pa.concat_tables([merged, table([entered[0]], OBJECTS)])

        for rows in (merged, OBJECTS.merged(again_read)):
            assert records == TopicLedger.of(entries(rows)).partition(0).objects["key-0"].records


def test_of_as_many_records_the_row_that_ends_first_counts() -> None:
    """4 and 7 were stored and deleted, 7 compacted, 4 and 8 stored there: 7 is still missed."""
    store, time = CountingStore(), HandClock(NOW)
    before = Entry("object", 0, 4, 7, "key-4", records=2, sha256="a", time=NOW)
    after = Entry("object", 0, 4, 8, "key-4", records=2, sha256="b", time=NOW + MINUTE)
    for one in (before, after):
        stream(store, time).append(table([one], OBJECTS))

    [found] = entries(stream(store, time).read().rows)

    assert before == replace(found, counter=None)


def test_how_far_a_run_came_is_known_where_there_was_nothing_to_store() -> None:
    """A partition of markers alone has no object; of its rows the one that ends last is kept."""
    store, time = CountingStore(), HandClock(NOW)
    for end in (4, 9, 6):
        one = ranged(PASSED, WHERE, Span(0, end), "run", NOW)
        stream(store, time).append(table([one], OBJECTS))

    found = [*entries(stream(store, time).read().rows)]

    assert [8] == [one.last for one in found]
    assert (9, 9) == (became(found, ()).end, TopicLedger.of(found).partition(0).reached())


def test_a_host_whose_clock_is_ahead_decides_nothing() -> None:
    """Rows count by what they follow: by a host a day ahead, then a right one, then lost again."""
    store, time = CountingStore(), HandClock(NOW)
    ledger = stream(store, time)
    ledger.append(table([row(0, run="first")], OBJECTS))
    time.at_ms = NOW + DAY
    gone = next(entries(ledger.read().rows))
    ledger.append(table([of_object(ACCEPTED, gone, "ahead", time.ms())], OBJECTS))
    agreed = TopicLedger.of(entries(ledger.read().rows)).partition(0)
    time.at_ms = NOW + 2
    ledger.append(table([row(0, run="repair")], OBJECTS))
    ledger.fold(1)

    again = TopicLedger.of(entries(ledger.read().rows)).partition(0)

    assert [] == agreed.missing(())
    assert ["repair"] == [entry.run for entry in again.missing(())]


def test_a_host_whose_clock_is_behind_is_heard() -> None:
    """What is accepted by a host a day behind is accepted, and stays so once it is folded."""
    store, time = CountingStore(), HandClock(NOW)
    ledger = stream(store, time)
    ledger.append(table([row(0, run="first", time=NOW)], OBJECTS))
    time.at_ms = NOW - DAY
    gone = next(entries(ledger.read().rows))
    ledger.append(table([of_object(ACCEPTED, gone, "behind", time.ms())], OBJECTS))
    ledger.fold(1)

    assert [] == TopicLedger.of(entries(ledger.read().rows)).partition(0).missing(())


def test_a_clock_set_back_hides_no_part() -> None:
    """Parts written after a clock was set back a day count, then and once it has caught up."""
    store, time = CountingStore(), HandClock(NOW + DAY)
    ledger = stream(store, time)
    ledger.append(table([row(0)], OBJECTS))
    ledger.fold(1)
    time.at_ms = NOW
    ledger.append(table([row(10)], OBJECTS))
    before = {entry.first for entry in entries(ledger.read().rows)}
    time.at_ms = NOW + 2 * DAY
    after = {entry.first for entry in entries(ledger.read().rows)}

    assert {0, 10} == before == after


def test_a_topic_has_the_partitions_of_the_latest_and_never_fewer() -> None:
    """A topic's settings are those of the later run, its partitions the most that were seen."""
    store, time = CountingStore(), HandClock(NOW + DAY)
    ledger = topics_stream(store, Layout(), time)
    said = TopicEntry("topic", "orders", "a-cluster", "an-id")
    ledger.append(table([replace(said, partitions=2)], TOPICS))
    time.at_ms = NOW
    settings = {"retention.ms": "1"}
    ledger.append(table([replace(said, partitions=4)], TOPICS))
    shrunk = replace(said, partitions=3, config=settings)
    ledger.append(table([shrunk], TOPICS))

    (row,) = topic_entries(ledger.read().rows)

    assert (4, settings) == (row.partitions, row.config)


def test_what_a_later_version_adds_is_left_alone() -> None:
    """Columns, kinds of rows and metadata that are not known say nothing, and the rest does."""
    store, time = CountingStore(), HandClock(NOW)
    ledger = stream(store, time)
    rows = [row(0, counter=NOW, digest="r9:0", data_key="k"), replace(row(20), kind="later")]
    later = pa.field("later", pa.struct([pa.field("deep", pa.list_(pa.int64()))]))
    schema = OBJECTS.schema.append(later)
    value = pa.array([{"deep": [1]}, None], later.type)
    name = f"{ledger.prefix}{9_999_999_999_999 - NOW}-{0:016d}.parquet"
    columns = table(rows, OBJECTS).append_column(later, value)
    names = [each for each in schema.names if each != "version"]  # which it may lack, too
    schema = pa.schema([schema.field(each) for each in names])
    body = encoded(columns.select(names), schema, {b"kbackup.later": "x"})
    store.put(name, io.BytesIO(body), sha256="", metadata={"later": "x"})
    ledger.append(table([row(40)], OBJECTS))

    before = ledger.read()
    ledger.fold(at_least=1)
    after = ledger.read()

    assert (0, ()) == (after.loose, after.damage)
    assert {*entries(before.rows)} == {*entries(after.rows)}
    said = TopicLedger.of(entries(after.rows))
    assert (["key-0", "key-40"], 1) == ([*said.partition(0).objects], said.unknown)
    assert ("r9:0", "k") == tuple(
        getattr(said.partition(0).objects["key-0"], name) for name in ("digest", "data_key")
    )


@pytest.mark.parametrize("is_longer", [True, False])
def test_what_takes_the_place_of_an_object_keeps_when_it_was_stored_first(
    *, is_longer: bool
) -> None:
    """Folded or not, whichever row counts; a row of an earlier version does not say."""
    store, time = CountingStore(), HandClock(NOW)
    ledger = stream(store, time)
    other = row(90, first_stored=3, held_since=3)
    ledger.append(table([row(0, first_stored=7, held_since=7), other], OBJECTS))
    ledger.append(
        table([row(0, records=11 if is_longer else 10, first_stored=9, held_since=9)], OBJECTS)
    )
    ledger.append(table([row(0, run="silent")], OBJECTS))

    found = {one.key: (one.first_stored, one.held_since) for one in entries(ledger.read().rows)}
    ledger.fold(at_least=1)
    folded = {one.key: (one.first_stored, one.held_since) for one in entries(ledger.read().rows)}

    held = 9 if is_longer else 7
    assert {"key-0": (7, held), "key-90": (3, 3)} == found == folded


@pytest.mark.parametrize(("row", "form"), [
    (Entry, OBJECTS), (TopicEntry, TOPICS), (GroupEntry, GROUPS), (TranslatedEntry, TRANSLATED),
])  # fmt: skip
def test_the_attributes_of_a_row_have_the_order_of_its_columns(
    row: type[Any], form: StreamForm
) -> None:
    """Rows are read by position."""
    assert form.schema.names == [each.name for each in fields(row)]
