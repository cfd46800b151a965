"""Which backup it is: its id, or where it is."""

from dataclasses import replace
from datetime import UTC, datetime
from io import BytesIO
from typing import Any, BinaryIO
from uuid import uuid4

import orjson
import pytest

from kbackup import config
from kbackup.catalog import identity
from kbackup.catalog.identity import BackupIdentity
from kbackup.config import loading
from kbackup.errors import CorruptObjectError, RefusedError, StoreError
from kbackup.kafka import Position
from kbackup.naming import Layout
from kbackup.records import Span, TopicPartition
from kbackup.restore import target
from kbackup.runs import wiring
from kbackup.runs.position import Cursor, Lane, RestorePosition, RestoreSource
from kbackup.stores import Store, StoreSettings, put_json
from kbackup.stores.memory import MemoryStore
from tests.support.target import FakeTarget, Restoring

NOW = datetime(2026, 11, 25, tzinfo=UTC)
LAYOUT = Layout()
WHERE = TopicPartition("orders", 0)


@pytest.fixture
def store() -> Store:
    """A bucket without anything in it."""
    return StoreSettings(f"memory://{uuid4()}").open()


def test_an_id_is_written_once_and_found_from_every_address(store: Store) -> None:
    """Each topics.dir of a bucket has its own."""
    before = identity.read(store, LAYOUT, "a")
    first = identity.ensure(store, LAYOUT, "a", NOW)
    again = identity.ensure(store, LAYOUT, "b", NOW)
    other = identity.ensure(store, Layout("other"), "a", NOW)

    assert BackupIdentity("a") == before
    assert (first.id, "b") == (again.id, again.address)
    assert first.id
    assert other.id != first.id
    assert identity.read(store, LAYOUT, "c") == BackupIdentity("c", first.id)


@pytest.mark.parametrize(
    ("first", "second", "how"),
    [
        ("topics", "topics/topics", "within"),
        ("topics/topics", "topics", "around"),
        ("a", "a/b/c", "within"),
        ("", "topics", "within"),
        ("topics", "", "around"),
    ],
)
def test_no_backup_begins_within_another(store: Store, first: str, second: str, how: str) -> None:
    """Objects of the inner one's topics could be taken for the outer one's; it gets no id."""
    identity.ensure(store, Layout(first), "a", NOW)

    with pytest.raises(RefusedError, match=f"lies {how} another backup"):
        identity.ensure(store, Layout(second), "a", NOW)

    assert not identity.read(store, Layout(second), "a").id


@pytest.mark.parametrize("second", ["topics2", "lake/topics", "topic", "other/topics/deep"])
def test_backups_may_lie_beside_each_other(store: Store, second: str) -> None:
    """Also where one name begins with the other."""
    identity.ensure(store, Layout("topics"), "a", NOW)

    assert identity.ensure(store, Layout(second), "a", NOW).id


def test_of_two_starters_one_wins(store: Store) -> None:
    """The other one, which has seen that there is no id, takes that of the first."""

    class Late:
        def __init__(self) -> None:
            self.ids: list[str] = []

        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

        def put(self, *args: Any, **options: Any) -> bool:
            self.ids.append(identity.ensure(store, LAYOUT, "first", NOW).id)
            return store.put(*args, **options)

    late: Any = Late()
    assert [identity.ensure(late, LAYOUT, "second", NOW).id] == late.ids


def test_an_id_of_a_later_version_is_read_and_one_that_is_damaged_is_an_error(store: Store) -> None:
    """What an object says beside its id says nothing here."""
    put_json(store, identity.key(LAYOUT), {"id": "x", "later": {"id": 7}})
    found = identity.read(store, LAYOUT, "a")
    ids = ("", "x" * 65, "a b", "a\n", "\u00e9", "../x")
    bodies = [orjson.dumps({"id": bad}) for bad in ids]
    for body in (b"{", b"[]", b'{"id": 7}', b"{}", *bodies):
        store.put(identity.key(LAYOUT), BytesIO(body), sha256="", metadata={})
        with pytest.raises(CorruptObjectError, match="does not hold the backup's id"):
            identity.ensure(store, LAYOUT, "a", NOW)

    assert found.name == "x"


@pytest.mark.parametrize(("status", "name"), [(403, "a"), (500, None)])
def test_an_id_that_may_not_be_read_is_none(status: int, name: str | None) -> None:
    """A store that does not answer has said nothing."""

    class Faulty(MemoryStore):
        def open(self, _key: str) -> BinaryIO:
            raise StoreError("no answer", "scripted", status=status)

    faulty = Faulty(StoreSettings("memory://faulty"))
    if name is None:
        with pytest.raises(StoreError):
            identity.read(faulty, LAYOUT, "a")
    else:
        assert identity.read(faulty, LAYOUT, "a").name == name


@pytest.mark.parametrize(
    ("mine", "its", "conflicts"),
    [
        pytest.param(("id", "here"), ("id", "there"), False, id="copy"),
        pytest.param(("id", "here"), ("here", ""), False, id="named by its address at first"),
        pytest.param(("id", "here"), ("there", ""), True, id="another address"),
        pytest.param(("id", "here"), ("other", "here"), True, id="another backup at the place"),
        pytest.param(("id", "here"), ("", ""), False, id="not known"),
    ],
)
def test_positions_are_of_another_backup_by_id(
    mine: tuple[str, str], its: tuple[str, str], *, conflicts: bool
) -> None:
    """What has no id is compared by its address."""
    one, other = (RestoreSource(name, WHERE, address=address) for name, address in (mine, its))

    assert (conflicts, conflicts) == (one.conflicts(other), other.conflicts(one))


def settings(**options: object) -> config.Settings:
    """What a restore goes by."""
    given = {"bootstrap_servers": "-", "s3_bucket_name": "b", "rename": "copy_of_$0", **options}
    return loading.load("restore", options=given, files=(), environ={}).settings


@pytest.mark.parametrize("partition_map", ["same", "modulo"])
def test_a_restore_that_was_begun_before_the_id_keeps_its_group(partition_map: str) -> None:
    """One that is begun later has the same group from wherever the backup is read."""
    asked, cluster = settings(partition_map=partition_map), FakeTarget()
    there: Any = cluster
    before, here = BackupIdentity("a"), BackupIdentity("a", "id")
    old = target.group(asked, there, before)
    new = target.group(asked, there, here)
    assert new == target.group(asked, there, replace(here, address="b")) != old

    group = old if partition_map == "same" else f"{old}.0"
    cluster.set_positions(group, {WHERE: Position(1)})

    assert old == target.group(asked, there, here)
    assert new == target.group(asked, there, replace(here, address="b"))


@pytest.mark.parametrize(
    ("name", "left"),
    [
        pytest.param("id", [5], id="a copy"),
        pytest.param(None, [5], id="begun before there was an id"),
        pytest.param("other", [0, 5], id="another backup"),
    ],
)
def test_a_restore_goes_on_from_a_copy(name: str | None, left: list[int]) -> None:
    """Its position names the backup, wherever that is, and names it by its id from then on."""
    restoring = Restoring()
    restoring.backup.put("orders", 0, range(5), range(5, 9))
    address = wiring.address(restoring.settings()).address
    copy = TopicPartition("copy_of_orders", 0)
    restoring.cluster.create_topic(copy.topic, 1, 1, {})
    restoring.cluster.logs[copy].rows = [{"value": b""}] * 5
    source = RestoreSource(name or address, WHERE)
    at = RestorePosition(source, restoring.cluster.ids[copy.topic], Cursor(5, 5), total=5)
    restoring.cluster.set_positions("g", {copy: at.position(Lane(copy, Span(0, 5)))})

    restoring.identity = BackupIdentity(address, "id")
    plan = restoring.plan(group="g", if_exists="append")

    (unit,) = plan.topics[0].units
    assert left == [files.start_offset for files in unit.sets]
    assert unit.position.source.backup == "id"
    assert orjson.loads(unit.positions()[copy].metadata)["backup"] == "id"
