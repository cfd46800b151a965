"""What a restore would write where."""

import io
from collections.abc import Mapping, Sequence
from hashlib import sha256
from uuid import uuid4

import pyarrow as pa
import pytest
from backup_samples import JSON, RECORD, Backup, batch
from record_samples import batch_of, write

from kbackup.catalog import listing
from kbackup.catalog.ledger.rows import OBJECT, Entry, TopicEntry, TopicLedger
from kbackup.config import loading
from kbackup.errors import ConfigurationError, IncompleteBackupError
from kbackup.events import to_json
from kbackup.formats import FormatOptions, by_name
from kbackup.naming import Layout, View
from kbackup.pipeline.views import ViewSpec
from kbackup.records import Facts
from kbackup.restore.plan import Planner, RestorePlan
from kbackup.runs import wiring
from kbackup.runs.backup_state import BackupState
from kbackup.runs.inventory import Inventory
from kbackup.stores import Store, StoreSettings, Thaw
from kbackup.stores.memory import MemoryStore
from tests.support.frozen_store import UNTIL, FrozenStore
from tests.support.target import FakeTarget, Restoring

HERE = "cluster-here"


def having(**topics: int) -> FakeTarget:
    """A cluster with *topics* of so many partitions."""
    found = FakeTarget()
    for name, count in topics.items():
        found.create_topic(name, count, 1, {})
    return found


@pytest.fixture
def store() -> Store:
    """A bucket of its own."""
    return MemoryStore(StoreSettings(f"memory://{uuid4()}"))


def put(store: Store, key: str, first: int, last: int, *, has_facts: bool = True) -> None:
    """Store an object with these offsets."""
    rows = [{"offset": at, "value": b"v"} for at in range(first, last + 1)]
    data = write(by_name("parquet"), View.RECORD, [batch_of(rows)])
    digest = sha256(data).hexdigest()
    facts = Facts(first, last, last - first + 1, 5, 9, digest).to_metadata()
    store.put(key, io.BytesIO(data), sha256=digest, metadata=facts if has_facts else {})


def whole(topic: str, partition: int, start: int) -> str:
    """The key of a full-record object."""
    return (
        f"topics/{topic}/partition={partition}/{topic}+{partition}+{start:010d}.record.zstd.parquet"
    )


def plan(
    store: Store, cluster: FakeTarget, sources: Mapping[str, TopicEntry] | None = None,
    entries: Sequence[Entry] = (), **options: object,
) -> RestorePlan:  # fmt: skip
    """The plan of a restore with these options."""
    loaded = loading.load(
        "restore",
        options={"bootstrap_servers": "-", "s3_bucket_name": "b", **options},
        files=(),
        environ={},
    )
    known = BackupState(sources or {}, ledgers={"orders": TopicLedger.of(entries)})
    found = listing.list_backup(store, Layout(), FormatOptions())
    settings, backup = loaded.settings, wiring.address(loaded.settings)
    planner = Planner(
        Inventory(settings, store, found, known), cluster, now_ms=1_800_000_000_000,
        backup=backup, group=wiring.restore_groups(settings, backup)[0],
    )  # fmt: skip
    return planner.plan()


def test_a_missing_topic_is_created_with_the_partitions_of_the_record(store: Store) -> None:
    """Partitions without an object count too, and nothing restored may be deleted at once."""
    put(store, whole("orders", 1, 0), 0, 4)
    settings = {"max.message.bytes": "77"}
    known = {"orders": TopicEntry("topic", "orders", "elsewhere", "", 6, settings)}

    (topic,) = plan(store, FakeTarget(), known, rename="copy_of_$0").topics

    assert ("create", "copy_of_orders", 6) == (
        topic.action, topic.copy.target, topic.copy.partitions,
    )  # fmt: skip
    assert ("-1", "77") == (topic.config["retention.ms"], topic.config["max.message.bytes"])


@pytest.mark.parametrize(("original", "expected"), [("2000", ["message_size"]), ("1000", [])])
def test_the_limits_of_original_and_target_are_compared(
    store: Store, original: str, expected: list[str]
) -> None:
    """What the ledger says of the original's largest message is held against the target's limit."""
    put(store, whole("orders", 0, 0), 0, 4)
    settings = {"max.message.bytes": original}
    known = {"orders": TopicEntry("topic", "orders", "elsewhere", "", 1, settings)}
    cluster = having(copy=1)
    cluster.configs["copy"] = {"max.message.bytes": "1000"}

    (topic,) = plan(store, cluster, known, rename="copy").topics

    assert expected == [code for code, _ in topic.warnings]


def test_a_created_topic_keeps_and_takes_records_of_any_age(store: Store) -> None:
    """Nothing restored is deleted or refused for its time, unless the operator says so."""
    put(store, whole("orders", 0, 0), 0, 4)

    (topic,) = plan(store, FakeTarget()).topics
    (asked,) = plan(store, FakeTarget(), topic_config=("retention.ms=77",)).topics

    kept = {
        "retention.ms": "-1", "cleanup.policy": "delete", "message.timestamp.type": "CreateTime",
    }  # fmt: skip
    limits = ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms")
    assert kept.items() <= topic.config.items()
    assert [str(2**63 - 1)] * 2 == [topic.config[name] for name in limits]
    assert "77" == asked.config["retention.ms"]


@pytest.mark.parametrize(("more", "codes"), [(-1, ["retention"]), (0, []), (1, [])])
def test_the_fullest_partition_is_held_against_what_the_topic_keeps(
    store: Store, more: int, codes: list[str]
) -> None:
    """A topic that keeps fewer bytes than the objects of one partition have is refused."""
    put(store, whole("orders", 0, 0), 0, 400)
    put(store, whole("orders", 1, 0), 0, 1)
    stored = [file.size for file in store.list("") if "partition=0" in file.key]
    kept = f"retention.bytes={stored[0] + more}"

    (topic,) = plan(store, FakeTarget(), topic_config=(kept,)).topics

    assert codes == [error.code for error in topic.refusals]


def test_archived_objects_are_found_before_anything_is_written() -> None:
    """The plan refuses, counts them by storage class, and says what to do."""
    store = FrozenStore()
    keys = [whole("orders", 0, 0), whole("orders", 0, 5), whole("orders", 1, 0)]
    for key, first in zip(keys, (0, 5, 0), strict=True):
        put(store, key, first, first + 4)
    store.classes = {keys[0]: "GLACIER", keys[1]: "DEEP_ARCHIVE"}
    store.thaws = {keys[0]: Thaw("thawing")}

    (refused,) = plan(store, FakeTarget()).topics
    (other,) = plan(store, FakeTarget(), partitions="1").topics
    store.thaws = dict.fromkeys(keys[:2], Thaw("ready", UNTIL))
    (ready,) = plan(store, FakeTarget()).topics

    [refusal] = refused.refusals
    assert ("refuse", 4) == (refused.action, refusal.exit_code)
    assert "2 objects of orders cannot be read now" in str(refusal)
    assert "1 in DEEP_ARCHIVE and 1 in GLACIER; 1 of them" in str(refusal)
    assert ("create", "create") == (other.action, ready.action)
    assert ("archived", "orders: 2 archived objects can be read until 2026-12-01T00:00:00Z") in (
        ready.warnings
    )


def test_without_a_record_the_highest_partition_counts(store: Store) -> None:
    """Without a ledger, the highest partition decides how many a target gets."""
    put(store, whole("orders", 4, 0), 0, 4)

    assert 5 == plan(store, FakeTarget()).topics[0].copy.partitions


def test_offsets_are_ordered_as_numbers(store: Store) -> None:
    """An offset of more digits than the padding comes last, not in the middle."""
    for start in (99_999_999_999, 0, 9_999_999_999):
        put(store, whole("orders", 0, start), start, start)

    (unit,) = plan(store, FakeTarget()).units()

    assert [0, 9_999_999_999, 99_999_999_999] == [files.start_offset for files in unit.sets]


def test_full_records_are_preferred_to_value_objects_of_the_same_offsets(store: Store) -> None:
    """What both layouts hold is restored once, from the one that has all of it."""
    put(store, whole("orders", 0, 10), 10, 19)
    for start in (0, 10, 15, 20):
        key = f"topics/orders/partition=0/orders+0+{start:010d}.json"
        store.put(key, io.BytesIO(b"1\n"), sha256=sha256(b"1\n").hexdigest(), metadata={})

    found = plan(store, FakeTarget())

    (unit,) = found.units()
    assert [(0, False), (10, True), (20, False)] == [
        (files.start_offset, files.is_whole) for files in unit.sets
    ]
    assert "shadowed" in [code for code, _ in found.topics[0].warnings]


def test_an_object_that_is_gone_is_no_good_restore() -> None:
    """What verify would call missing is not left out in silence."""
    backup = Backup()
    keys = backup.put("orders", 0, range(10), range(10, 20), range(20, 30))
    entries = [backup.entry(key) for key in keys]
    backup.store.delete(keys[1])

    found = plan(backup.store, FakeTarget(), entries=entries)
    agreed = plan(backup.store, FakeTarget(), entries=entries, behavior_on_error="log")

    assert ["incomplete"] == [error.code for error in found.refusals]
    assert [] == agreed.refusals


def test_the_plan_counts_records_where_the_ledger_knows_them_all() -> None:
    """A plan's number of records is unknown if one partition's is."""
    backup = Backup()
    keys = [*backup.put("orders", 0, range(10)), *backup.put("orders", 1, range(5))]
    entries = [backup.entry(key) for key in keys]

    half = plan(backup.store, FakeTarget(), entries=entries[:1])
    both = plan(backup.store, FakeTarget(), entries=entries)

    assert None is to_json(half.topics[0].event())["records"]
    assert 15 == to_json(both.topics[0].event())["records"]


def test_the_plan_says_what_order_it_can_promise() -> None:
    """Rows without offsets cannot be put in order over several directories."""
    again = Restoring()
    again.backup.put_in("a=1", "orders", 0, [0, 2], views=JSON)
    one = again.plan().topics[0].warnings
    again.backup.put_in("a=2", "orders", 0, [1, 3], views=JSON)

    assert "order" not in [code for code, _ in one]
    assert "order" in [code for code, _ in again.plan().topics[0].warnings]


def test_more_replicas_than_brokers_are_refused_by_the_plan(store: Store) -> None:
    """More replicas than brokers are refused by the plan, not in the middle of the run."""
    put(store, whole("orders", 0, 0), 0, 9)

    asked = plan(store, FakeTarget(), replication_factor=4)
    fits = plan(store, FakeTarget(), replication_factor=3)
    there = plan(store, having(orders=1), replication_factor=4)

    assert ["refused"] == [error.code for error in asked.refusals]
    assert [] == fits.refusals
    assert [] == there.refusals


def test_a_partition_number_beyond_belief_is_refused(store: Store) -> None:
    """A planted name cannot create two billion partitions."""
    put(store, whole("orders", 0, 0), 0, 9)
    put(store, whole("orders", 2**31 - 1, 0), 0, 9)

    known = {"orders": TopicEntry("topic", "orders", partitions=3)}

    assert ["refused"] == [error.code for error in plan(store, FakeTarget()).refusals]
    assert ["refused"] == [error.code for error in plan(store, FakeTarget(), known).refusals]


def test_one_refused_topic_refuses_all(store: Store) -> None:
    """One refused topic refuses the whole restore."""
    put(store, whole("orders", 2, 0), 0, 4)
    put(store, whole("payments", 0, 0), 0, 4)

    found = plan(store, having(orders=1))

    assert ["fewer_partitions"] == [error.code for error in found.refusals]
    assert {"orders": "refuse", "payments": "create"} == {
        topic.copy.source: topic.action for topic in found.topics
    }


def test_a_topic_that_is_not_there_is_no_empty_restore(store: Store) -> None:
    """A topic that is not in the backup is an error, not an empty restore."""
    put(store, whole("orders", 0, 0), 0, 4)

    with pytest.raises(IncompleteBackupError, match="odrers is not in the backup"):
        plan(store, FakeTarget(), topics="odrers")


def test_a_sink_watches_what_its_pattern_matches() -> None:
    """Topics too that do not exist yet: a restore would make them."""
    known = BackupState(sinks=[TopicEntry("sink", cluster_id=HERE, group="g", pattern="pay.*")])

    assert known.watches("pay_copy_of_orders", HERE)
    assert not known.watches("orders", HERE)
    assert not known.watches("payments", "elsewhere")


def test_an_empty_topic_comes_back_with_its_partitions(store: Store) -> None:
    """A topic without objects is created with its partitions, as the ledger knows them."""
    put(store, whole("orders", 0, 0), 0, 4)
    known = {"audit": TopicEntry("topic", "audit", "elsewhere", "", 6)}

    found = plan(store, FakeTarget(), known, rename="copy_of_$0")

    assert [("audit", "create", 6, 0), ("orders", "create", 1, 1)] == [
        (one.copy.source, one.action, one.copy.partitions, one.objects) for one in found.topics
    ]
    assert [["nothing_stored"], []] == [[code for code, _ in one.warnings] for one in found.topics]
    assert [] == found.refusals


def test_an_object_that_holds_less_than_the_ledger_says_is_no_good_restore(store: Store) -> None:
    """An object that holds less than the ledger says is detected before anything is written."""
    key = whole("orders", 0, 0)
    put(store, key, 0, 4)
    longer = Entry(OBJECT, 0, 0, 9, key, "record", 10, 7, "ab", time=1)

    found = plan(store, FakeTarget(), entries=[longer])

    assert [7] == [error.exit_code for error in found.refusals]
    assert "it holds 5 records up to offset 4; 10 records up to offset 9 were" in str(
        found.refusals[0]
    )


def test_values_that_two_objects_may_hold_are_refused(store: Store) -> None:
    """Rows without offsets are not dropped by guess, nor restored twice."""
    keys = [f"topics/orders/partition=0/orders+0+{first:010d}.json" for first in (0, 5, 20)]
    for key in keys:
        store.put(key, io.BytesIO(b"1\n"), sha256=sha256(b"1\n").hexdigest(), metadata={})
    entries = [
        Entry(OBJECT, 0, first, last, key, "value", last - first + 1, 2, "ab", time=1)
        for key, first, last in zip(keys, (0, 5, 20), (9, 14, 29), strict=True)
    ]

    overlapping = plan(store, FakeTarget(), entries=entries, rename="copy_of_$0")

    (refusal,) = overlapping.refusals
    assert f"orders-0: {keys[0]}, {keys[1]}" == refusal.what


def test_a_topic_whose_objects_are_all_gone_was_not_empty(store: Store) -> None:
    """That they are missing is said, and not that nothing was ever stored."""
    put(store, whole("pay", 0, 0), 0, 4)
    gone = Entry(OBJECT, 0, 0, 9, whole("orders", 0, 0), "record", 10, 7, "ab", time=1)
    known = {"orders": TopicEntry("topic", "orders", "elsewhere", "", 1)}

    found = plan(store, FakeTarget(), known, entries=[gone], rename="copy_of_$0")

    (orders,) = [one for one in found.topics if one.copy.source == "orders"]
    assert [7] == [error.exit_code for error in orders.refusals]
    assert () == orders.warnings


def test_a_stray_object_refuses_no_other_partitions(store: Store) -> None:
    """A partition that only a mistaken name can have refuses a restore of all, and of itself."""
    for partition in (0, 1, 7):
        put(store, whole("orders", partition, 0), 0, 9)
    sources = {"orders": TopicEntry("topic", "orders", "c", "id", 2)}

    everything = plan(store, FakeTarget(), sources, rename="copy_of_$0")
    some = plan(store, FakeTarget(), sources, rename="copy_of_$0", partitions="0,1")

    assert ["claims that there is a partition 7" in one.what for one in everything.refusals] == [
        True
    ]
    assert ([], 2) == (some.refusals, some.topics[0].partitions)


@pytest.mark.parametrize(
    ("asked", "lacking"),
    [
        pytest.param("0,2", None, id="one without objects is known"),
        pytest.param("5", None, id="of one of the topics"),
        pytest.param("7", "7", id="of none"),
        pytest.param("0,9,7", "7,9", id="some of none"),
    ],
)
def test_a_partition_that_no_topic_has_is_refused(
    store: Store, asked: str, lacking: str | None
) -> None:
    """A restore of nothing would look like one that is done."""
    put(store, whole("orders", 0, 0), 0, 4)
    put(store, whole("bills", 5, 0), 0, 4)
    known = {"orders": TopicEntry("topic", "orders", partitions=3)}

    if lacking is None:
        assert 2 == len(plan(store, FakeTarget(), known, partitions=asked).topics)
        return
    with pytest.raises(ConfigurationError) as refused:
        plan(store, FakeTarget(), known, partitions=asked)
    assert f"no topic of the backup has the partitions {lacking}" == refused.value.what
    assert "bills, orders: the highest is 5" == refused.value.why


def test_leaving_out_every_topic_is_refused(store: Store) -> None:
    """The pattern is to blame, and not the backup."""
    put(store, whole("orders", 0, 0), 0, 4)

    with pytest.raises(ConfigurationError, match="leaves out every topic"):
        plan(store, FakeTarget(), topics_exclude="ord.*")


WEEK_MS = 7 * 86_400_000
NOW_MS = 1_700_000_001_000
"""When `Restoring` plans."""


def aged(offsets: range, days: int) -> pa.RecordBatch:
    """Records that are so many days old."""
    rows = batch(offsets)
    stamps = pa.array([NOW_MS - days * 86_400_000] * len(rows), pa.int64())
    return rows.set_column(1, "timestamp", stamps)


@pytest.mark.parametrize("knows", ["by the ledger", "by the objects"])
@pytest.mark.parametrize(
    ("contents", "options", "expected"),
    [
        pytest.param([(JSON, 30)], {}, [], id="values get the current time"),
        pytest.param([(JSON, 0), (RECORD, 30)], {}, ["retention"], id="old records behind values"),
        pytest.param([(RECORD, 30), (RECORD, 0)], {}, ["retention"], id="old records first"),
        pytest.param(
            [(RECORD, 30), (RECORD, 0)], {"from_offset": "10"}, [], id="old records left out"
        ),
        pytest.param(
            [(RECORD, 30), (RECORD, 0)], {"from_time": str(NOW_MS - 5)}, [], id="old times left out"
        ),
    ],
)
def test_the_age_of_what_is_restored_is_held_against_what_the_topic_keeps(
    knows: str,
    contents: list[tuple[tuple[ViewSpec, ...], int]],
    options: dict[str, str],
    expected: list[str],
) -> None:
    """Records that are left out, or whose times are not stored, are as old as they like."""
    again = Restoring()
    for at, (views, days) in enumerate(contents):
        cut = aged(range(10 * at, 10 * at + 10), days)
        for key in again.backup.put("orders", 0, cut, views=views):
            if knows == "by the ledger":
                again.backup.entries.setdefault("orders", []).append(again.backup.entry(key))

    (topic,) = again.plan(topic_config=(f"retention.ms={WEEK_MS}",), **options).topics

    assert expected == [error.code for error in topic.refusals]
    assert "retention" not in [code for code, _ in topic.warnings]


def test_older_records_behind_newer_ones_are_held_against_what_the_topic_keeps() -> None:
    """The first object need not hold the oldest record."""
    again = Restoring()
    for key in again.backup.put("orders", 0, aged(range(10), 0), aged(range(10, 20), 30)):
        again.backup.entries.setdefault("orders", []).append(again.backup.entry(key))

    (topic,) = again.plan(topic_config=(f"retention.ms={WEEK_MS}",)).topics

    assert ["retention"] == [error.code for error in topic.refusals]
