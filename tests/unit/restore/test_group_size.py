"""Many groups over many partitions: what setting them costs, counted in calls."""

from typing import Any

import pyarrow as pa
import pytest

from kbackup.catalog.groups import GROUPS, OFFSET, GroupEntry, group_stream
from kbackup.catalog.groups import TOPIC as ABOUT_TOPIC
from kbackup.clock import SystemClock
from kbackup.naming import Layout
from kbackup.records import TopicPartition
from kbackup.restore.groups import GroupsOptions, GroupTranslated
from kbackup.runs.report import Summary
from tests.support.grouped import capture, groups_run, restored, set_groups
from tests.support.target import COPY, MARKER, Grouped, Restoring

OFFSETS = (2, 5, 9)


class Looks:
    """The attribute of a row that says whose it is, which counts how often it is looked at."""

    def __init__(self, member: Any) -> None:
        self._member, self.count = member, 0

    def __get__(self, row: Any, kind: Any = None) -> Any:
        self.count += 1
        return self._member.__get__(row, kind)

    def __set__(self, row: Any, value: Any) -> None:
        self._member.__set__(row, value)


def captured(groups: int, partitions: int) -> pa.Table:
    """A capture in which each group stood in each partition."""
    rows = groups * partitions
    columns: dict[str, Any] = {
        "kind": [OFFSET] * rows,
        "group": [f"g{at}" for at in range(groups) for _ in range(partitions)],
        "partition": [*range(partitions)] * groups,
        "offset": [OFFSETS[at % 3] for at in range(groups) for _ in range(partitions)],
        "metadata": [b"m"] * rows,
    }
    about = {"kind": [ABOUT_TOPIC], **{name: [None] for name in list(columns)[1:]}}
    every = {name: about[name] + columns[name] for name in columns}
    shared = {
        "taken": 1,
        "topic": "orders",
        "cluster_id": "",
        "topic_id": "",
        "time": 0,
        "run": "s",
    }
    every |= {name: [value] * (rows + 1) for name, value in shared.items()}
    every["is_complete"] = [True] + [None] * rows
    lacking = {name: [None] * (rows + 1) for name in GROUPS.schema.names if name not in every}
    return pa.table(every | lacking, schema=GROUPS.schema)


def read_from(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> list[TopicPartition]:
    """The partition of each read that follows."""
    reads: list[TopicPartition] = []
    real = type(cluster.reader("")).read

    def read(reader: Any, where: TopicPartition, *more: Any) -> Any:
        reads.append(where)
        return real(reader, where, *more)

    monkeypatch.setattr(type(cluster.reader("")), "read", read)
    return reads


def test_what_cannot_be_told_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many groups stand behind a record that is gone: each of them is refused."""
    of = restored(range(10), cluster=Grouped(), lacks_rows=True)
    cluster: Any = of.cluster
    cluster.logs[COPY].rows[3] = MARKER
    cluster.configs[COPY.topic] = {"cleanup.policy": "compact"}
    group_stream(of.store, Layout(), SystemClock()).append(captured(20, 1))
    reads = read_from(cluster, monkeypatch)

    _, told = set_groups(of)

    refused = [one for one in told if isinstance(one, GroupTranslated) and one.becomes is None]
    assert (13, len(OFFSETS)) == (len(refused), len(reads))


@pytest.mark.parametrize(
    ("groups", "partitions"),
    [(40, 10), pytest.param(2000, 500, marks=pytest.mark.nightly)],
)
def test_what_groups_cost_is_in_proportion_to_their_number(
    groups: int, partitions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A place is read once however many stand there; a group asks for itself and nothing else."""
    of = Restoring(cluster=Grouped())
    for at in range(partitions):
        of.backup.put("orders", at, range(10))
    of.restore(target_partitions=partitions)
    group_stream(of.store, Layout(), SystemClock()).append(captured(groups, partitions))
    cluster: Any = of.cluster
    reads = read_from(cluster, monkeypatch)
    summary = Summary("r", "restore groups")
    run = groups_run(of, summary)
    looks = Looks(vars(GroupEntry)["group"])
    monkeypatch.setattr(GroupEntry, "group", looks)

    told = sum(isinstance(one, GroupTranslated) for one in run.set(GroupsOptions()))

    ended = summary.finish()
    assert ([], groups, groups * partitions) == (
        list(ended.errors),
        len(ended.facts["groups"]),
        told,
    )
    assert len(OFFSETS) * partitions == len(reads)
    assert groups == len(cluster.changes)
    assert looks.count < 10 * groups * partitions


def test_what_was_read_for_one_offset_serves_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """An object, and each batch of the target, is read once for all offsets in it."""
    of = Restoring(cluster=Grouped())
    for partition in range(2):
        of.backup.put("orders", partition, range(10))
    of.restore(target_partitions=2)
    capture(of.backup, **{f"g{at}": [(at * 7) % 10] * 2 for at in range(10)})
    cluster: Any = of.cluster
    reads, opened, real = read_from(cluster, monkeypatch), list[str](), type(of.store).open

    def opening(store: Any, key: str, *more: Any, **options: Any) -> Any:
        opened.append(key)
        return real(store, key, *more, **options)

    monkeypatch.setattr(type(of.store), "open", opening)

    told = [one for one in set_groups(of)[1] if isinstance(one, GroupTranslated)]

    assert {one.was == one.becomes for one in told} == {True}
    assert 2 * 10 / 2 == len(reads)  # the target gives two records at a time
    objects = [key for key in opened if "/orders/" in key and not key.startswith("_kbackup")]
    assert 2 == len(objects)
