"""A recovery that is rehearsed: whatever ends it, nothing of it stays, and nothing else goes."""

import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import pytest
from backup_samples import JSON, OPTIONS

from kbackup.catalog import drills
from kbackup.catalog.drills import DrillReport, Scratch
from kbackup.config import loading
from kbackup.errors import LockedError, NoKeyError
from kbackup.events import Ended, to_json
from kbackup.naming import View
from kbackup.pipeline.views import ViewSpec
from kbackup.records import TopicPartition
from kbackup.restore import drill
from kbackup.restore.drill import DrillOptions, DrillRun
from kbackup.runs.context import Environment, Stop
from kbackup.stores import Store
from tests.support.grouped import capture
from tests.support.standby import Standby
from tests.support.target import CrashError, Grouped
from tests.support.telling import telling

if TYPE_CHECKING:
    from collections.abc import Callable

FOREIGN = "drill_x_orders"

AVRO = (ViewSpec(View.VALUE, "avro", OPTIONS, "string"),)


@dataclass
class Rehearsing:
    """Drills of one backup in one cluster."""

    folder: Path
    of: Standby = field(default_factory=lambda: Standby(target=Grouped()))
    stop: Stop = field(default_factory=Stop)

    def __post_init__(self) -> None:
        self.cluster.add_topic(FOREIGN, 1, {})

    @property
    def cluster(self) -> Any:
        """The target."""
        return self.of.target

    def run(self, asked: DrillOptions = DrillOptions(), **options: Any) -> Ended:  # noqa: B008
        """One drill."""
        extra = [f"lock.dir={self.folder}", *options.pop("extra", ())]
        given = {"bootstrap_servers": "-", "s3_bucket_name": "b", **options}
        settings = loading.load("drill", options=given, files=(), environ={}, extra=extra).settings
        run_tasks: Any = self.of.tasks
        environment = Environment(self.cluster, self.of.backup.settings, run_tasks, self.of.time)
        return DrillRun(settings, telling(self.of.told), self.stop, environment, asked)()

    def capture(self, **stood: int) -> None:
        """Store where groups stood."""
        capture(self.of.backup, 1, None, self.of.time, **stood)

    def left(self) -> tuple[list[str], list[str], list[str]]:
        """Topics, groups, and what the bucket says of them."""
        store = self.of.backup.store
        keys = [entry.key for entry in store.list("_kbackup/")]
        kept = [key for key in keys if "/scratch/" in key or "/restores/" in key
                or "/applied/" in key or "/runs/" in key or "/locks/" in key]  # fmt: skip
        return sorted(self.cluster.ids), [*self.cluster.groups, *self.cluster.stood], kept


NOTHING: tuple[list[str], list[str], list[str]] = ([FOREIGN], [], [])


@pytest.fixture
def rehearsing(tmp_path: Path) -> Rehearsing:
    """A topic of 30 records in three objects, in which two groups stood."""
    found = Rehearsing(tmp_path)
    found.of.sink("orders", 0, range(10), range(10, 20), range(20, 30))
    found.capture(a=3, b=30)
    return found


def report_of(ended: Ended) -> DrillReport:
    """What the drill says of itself."""
    found: DrillReport = ended.facts["drill"]
    return found


def test_all_records_and_groups_are_proved_and_nothing_stays(rehearsing: Rehearsing) -> None:
    """The report is stored as it is told, with the times of all phases."""
    ended = rehearsing.run()

    report = report_of(ended)
    assert ([], 0, 1) == (list(ended.errors), ended.exit_code, ended.facts["deleted"])
    assert [("orders", 30, 0, "same", True)] == [
        (one.topic, one.records, one.differences, one.verdict, one.is_whole)
        for one in report.topics
    ]
    assert [("a", 1, True), ("b", 1, True)] == [
        (one.group, one.partitions, one.is_equal) for one in report.groups
    ]
    phases = ["plan", "creation", "restore", "groups", "comparison", "clean-up"]
    assert phases == list(report.seconds)
    assert NOTHING == rehearsing.left()
    (stored,) = drills.newest_first(rehearsing.of.backup.store, rehearsing.of.backup.layout)
    assert stored == report


def killed(rehearsing: Rehearsing, patch: pytest.MonkeyPatch, phase: str) -> None:
    """Kill a drill."""

    def crash(*_: Any, **__: Any) -> Any:
        raise CrashError

    def after(owner: Any, name: str, count: int = 1) -> None:
        real, calls = getattr(owner, name), [0]

        def then(*words: Any, **more: Any) -> Any:
            found = real(*words, **more)
            calls[0] += 1
            if calls[0] == count:
                raise CrashError
            return found

        patch.setattr(owner, name, then)

    cluster = rehearsing.cluster
    actions: dict[str, Callable[[], None]] = {
        "names stored": lambda: after(drills, "keep_scratch"),
        "created": lambda: patch.setattr(DrillRun, "created", crash),
        "ids stored": lambda: after(drills, "keep_scratch", 2),
        "records written": lambda: patch.setattr(cluster, "crash_at", 1),
        "restored": lambda: patch.setattr(DrillRun, "_take", crash),
        "groups set": lambda: after(DrillRun, "_set_groups"),
        "compared": lambda: after(DrillRun, "_check_counts"),
        "topics deleted": lambda: after(type(cluster), "delete_topics"),
        "groups deleted": lambda: after(type(cluster), "delete_groups"),
        "forgotten": lambda: after(drills, "forget"),
    }
    actions[phase]()
    with pytest.raises(CrashError):
        rehearsing.run()


PHASES = (
    "names stored", "created", "ids stored", "records written", "restored", "groups set",
    "compared", "topics deleted", "groups deleted", "forgotten",
)  # fmt: skip


@pytest.mark.parametrize("phase", PHASES)
def test_what_a_killed_drill_left_the_next_one_deletes(phase: str, rehearsing: Rehearsing) -> None:
    """In whatever phase it was killed; what others have called alike stays."""
    with pytest.MonkeyPatch.context() as patch:
        killed(rehearsing, patch, phase)

    ended = rehearsing.run()

    assert (0, NOTHING) == (ended.exit_code, rehearsing.left())


@pytest.mark.parametrize("phase", ["created", "records written"])
def test_a_topic_of_the_same_name_is_not_deleted(phase: str, rehearsing: Rehearsing) -> None:
    """One that was created anew, with another id, or that has records and no stored id."""
    with pytest.MonkeyPatch.context() as patch:
        killed(rehearsing, patch, phase)
    cluster = rehearsing.cluster
    (name,) = {*cluster.ids} - {FOREIGN}
    if phase == "records written":
        cluster.delete_topics([name])
        cluster.add_topic(name, 1, {})
    else:
        cluster.logs[TopicPartition(name, 0)].rows.append({"value": b"of somebody else"})

    ended = rehearsing.run()

    assert (0, sorted([FOREIGN, name])) == (ended.exit_code, sorted(cluster.ids))
    assert [name] == [each.place.get("topic") for each in ended.warnings]


def test_a_drill_whose_topic_was_replaced_has_failed(
    rehearsing: Rehearsing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not everything was deleted: the topic is named, and stays."""
    cluster = rehearsing.cluster
    real = DrillRun._check_counts

    def replaced(self: DrillRun, ended: Ended) -> None:
        real(self, ended)
        (name,) = {*cluster.ids} - {FOREIGN}
        cluster.delete_topics([name])
        cluster.add_topic(name, 1, {})

    monkeypatch.setattr(DrillRun, "_check_counts", replaced)

    ended = rehearsing.run()

    assert (4, 0, 2) == (ended.exit_code, ended.facts["deleted"], len(cluster.ids))
    assert 4 == report_of(ended).exit_code


def test_a_drill_in_another_cluster_is_left_alone(rehearsing: Rehearsing) -> None:
    """What it has there is deleted by a drill there."""
    store, layout = rehearsing.of.backup.store, rehearsing.of.backup.layout
    other = Scratch("x", 1, "elsewhere", {FOREIGN: "id-1"})
    drills.keep_scratch(store, layout, other)

    ended = rehearsing.run()

    assert (0, [other]) == (ended.exit_code, drills.left_over(store, layout))
    assert [FOREIGN] == sorted(rehearsing.cluster.ids)


def test_a_limit_that_is_exceeded_is_a_failure(rehearsing: Rehearsing) -> None:
    """Exit 7, with a report, and no topic left; an age that nobody knows is too old."""
    slow = rehearsing.run(DrillOptions(rto_s=-1))
    old = rehearsing.run(DrillOptions(rpo_s=900))

    assert (7, ["drill"]) == (slow.exit_code, [one.code for one in slow.errors])
    assert (7, ["drill"]) == (old.exit_code, [one.code for one in old.errors])
    assert "not known" in old.errors[0].what
    assert [7, 7] == [report_of(one).exit_code for one in (slow, old)]
    assert NOTHING == rehearsing.left()


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("is_gone", [True, False])
def test_damage_is_a_failure_with_a_report(
    which: int, is_gone: bool, rehearsing: Rehearsing
) -> None:
    """An object that is gone, the first or the last one too; one that cannot be read."""
    store = rehearsing.of.backup.store
    key = [entry.key for entry in store.list("topics/")][which]
    store.delete(key)
    if not is_gone:
        body = b"PAR1 damaged PAR1"
        sha256 = hashlib.sha256(body).hexdigest()
        store.put(key, io.BytesIO(body), sha256=sha256, metadata={})

    ended = rehearsing.run()

    assert (7, "not compared") == (ended.exit_code, report_of(ended).topics[0].verdict)
    assert NOTHING == rehearsing.left()


def test_nothing_to_compare_is_no_success(tmp_path: Path) -> None:
    """A topic without any record: exit 3."""
    rehearsing = Rehearsing(tmp_path)
    rehearsing.of.name("orders")

    ended = rehearsing.run()

    assert (3, {drill.NOTHING_COMPARED: 1}) == (ended.exit_code, dict(ended.skipped))
    assert NOTHING == rehearsing.left()


def test_two_at_once_do_no_harm(rehearsing: Rehearsing, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one ends with exit code 8, and the first one passes."""
    refused: list[int] = []
    real = DrillRun._check_counts

    def beside(self: DrillRun, ended: Ended) -> None:
        if not refused:
            with pytest.raises(LockedError) as caught:
                rehearsing.run()
            refused.append(caught.value.exit_code)
        real(self, ended)

    monkeypatch.setattr(DrillRun, "_check_counts", beside)

    assert (0, [8]) == (rehearsing.run().exit_code, refused)


def test_a_stop_deletes_what_was_made(
    rehearsing: Rehearsing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit 143, no report, and nothing left."""
    real = DrillRun.created

    def stopped(self: DrillRun, ids: Any) -> None:
        real(self, ids)
        rehearsing.stop.ask(15)

    monkeypatch.setattr(DrillRun, "created", stopped)

    ended = rehearsing.run()

    assert (143, NOTHING) == (ended.exit_code, rehearsing.left())
    assert "drill" not in ended.facts


@pytest.mark.parametrize(
    ("most", "stored"),
    [
        pytest.param(1, {0: 10, 1: 5}, id="an object of each at least"),
        pytest.param(None, {0: 30, 1: 10}, id="all"),
    ],
)
def test_a_sample_is_the_newest_objects_of_each_partition(
    most: int | None, stored: dict[int, int], rehearsing: Rehearsing
) -> None:
    """What a sink stores meanwhile is not of it; groups go on in it; all is estimated."""
    rehearsing.of.sink("orders", 1, range(5), range(5, 10), partitions=2)

    ended = rehearsing.run(DrillOptions(most))

    report = report_of(ended)
    assert [] == [str(one) for one in ended.errors]
    compared = {row.where.partition: row.records for row in ended.partitions}
    assert stored == compared
    assert (most is None) == report.topics[0].is_whole
    assert NOTHING == rehearsing.left()


class Sealed:
    """A store of encrypted objects, the oldest of which the key that was given does not open."""

    def __init__(self, store: Store) -> None:
        self._below = store
        self._oldest = min(store.list("topics/"), key=lambda one: one.modified).key

    def __getattr__(self, name: str) -> Any:
        return getattr(self._below, name)

    def open(self, key: str) -> BinaryIO:
        """Open what can be."""
        if key == self._oldest:
            raise NoKeyError(f"{key} is encrypted", "for others alone", key=key)
        return self._below.open(key)

    def stored_size(self, size: int) -> int:
        """The same."""
        return size

    def keyed(self, digest: str) -> str:
        """The same."""
        return digest

    def can_read(self, _: Mapping[str, str]) -> bool:
        """Any."""
        return True


class Sealing:
    """What stands around such a store."""

    def wrap(self, store: Store) -> Any:
        """Return it."""
        return Sealed(store)


def test_a_key_that_opens_the_newest_alone_is_found(rehearsing: Rehearsing) -> None:
    """A sample of the newest objects would prove nothing of those from before it was added."""
    backup = rehearsing.of.backup
    backup.settings = replace(backup.settings, wrapper=Sealing())

    with pytest.raises(NoKeyError, match="is encrypted"):
        rehearsing.run(DrillOptions(1))

    assert NOTHING == rehearsing.left()


def test_a_dry_run_changes_nothing(rehearsing: Rehearsing) -> None:
    """It shows the plan."""
    before = [entry.key for entry in rehearsing.of.backup.store.list("")]

    ended = rehearsing.run(dry_run=True)

    assert (0, before) == (
        ended.exit_code, [entry.key for entry in rehearsing.of.backup.store.list("")]
    )  # fmt: skip
    assert NOTHING == rehearsing.left()
    (planned,) = [each for each in rehearsing.of.told if each["type"] == "plan_topic"]
    assert ("create", True) == (planned["action"], planned["target"].startswith("drill_"))


def test_a_plan_says_what_a_drill_takes_as_the_last_one_did(rehearsing: Rehearsing) -> None:
    """That is more than its restore takes; before a first one nobody knows."""
    before = rehearsing.run(dry_run=True).facts["estimate"]
    report = rehearsing.run().facts["drill"]
    after = rehearsing.run(dry_run=True).facts["estimate"]

    stored = sum(topic.size_bytes for topic in report.topics)
    took = round(sum(report.seconds.values()), 1)
    assert [(stored, None), (stored, took)] == [(one.bytes, one.seconds) for one in (before, after)]


def test_nothing_is_written_that_could_not_be_deleted(
    rehearsing: Rehearsing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the permission to delete, no record is written; the topic is named."""
    monkeypatch.setattr(drill, "_LOOK_S", 0)
    rehearsing.cluster.forbidden = frozenset({"DELETE"})

    ended = rehearsing.run()

    assert (5, []) == (ended.exit_code, rehearsing.of.tasks.units)
    assert "may not delete topic drill_" in ended.errors[0].what


def test_a_topic_that_is_there_already_is_left_alone(
    rehearsing: Rehearsing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is written to one that a drill did not create, empty or not."""
    monkeypatch.setattr(drill, "token_hex", lambda _: "5c1e09ab")
    rehearsing.cluster.add_topic("drill_5c1e09ab_orders", 1, {})

    ended = rehearsing.run()

    assert (4, []) == (ended.exit_code, rehearsing.of.tasks.units)
    assert ["drill_5c1e09ab_orders", FOREIGN] == sorted(rehearsing.cluster.ids)


def test_values_whose_schemas_would_stay_are_refused(tmp_path: Path) -> None:
    """A converter that registers schemas would leave them behind; full records need none."""
    rehearsing = Rehearsing(tmp_path)
    rehearsing.of.sink("orders", 0, range(3))
    extra = ["value.converter.schema.registry.url=http://127.0.0.1:1"]

    whole = rehearsing.run(extra=extra, value_converter="avro")
    rehearsing.of.backup.put("values", 0, range(3), views=AVRO)
    values = rehearsing.run(extra=extra, value_converter="avro", topics="values")

    assert (0, 4) == (whole.exit_code, values.exit_code)
    assert NOTHING == rehearsing.left()


@pytest.mark.parametrize(
    ("chosen", "code", "groups"), [(None, 4, ["a", "b"]), ("a", 4, ["a"]), ("none", 0, [])]
)
def test_values_pass_where_no_group_is_chosen(
    tmp_path: Path, chosen: str | None, code: int, groups: list[str]
) -> None:
    """Nothing tells where groups stood in values without offsets; earlier sinks captured them."""
    rehearsing = Rehearsing(tmp_path)
    rehearsing.of.backup.put("orders", 0, range(3), views=JSON)
    rehearsing.capture(a=2, b=1)

    ended = rehearsing.run(groups=chosen)

    assert (code, groups) == (ended.exit_code, [each.group for each in report_of(ended).groups])
    assert NOTHING == rehearsing.left()


def test_its_summary_is_plain(rehearsing: Rehearsing) -> None:
    """The report in the line of JSON is the one that is stored."""
    ended = rehearsing.run()

    line = json.loads(json.dumps(to_json(ended)))
    assert report_of(ended) == DrillReport.from_dict(line["drill"])
