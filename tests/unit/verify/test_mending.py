"""A ledger that is damaged or lost, and objects that were removed on purpose."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from backup_samples import JSON, RECORD, Backup, batch

from kbackup.backup.ledger import place
from kbackup.backup.ledger.rows import OBJECTS, TOPICS, TopicEntry, entries, stored, table
from kbackup.errors import ConfigurationError
from kbackup.flow.views import ReadOptions, ViewSpec
from kbackup.naming import View
from kbackup.records import Facts, Span, TopicIdentity, TopicPartition
from kbackup.runs import history, known
from kbackup.runs.summary import Summary
from kbackup.verify.mending import Acceptance, Mending
from kbackup.verify.run import Notes, verify
from tests.support.hand_clock import HandClock
from tests.support.verified import NOW, here

WHERE = TopicPartition("orders", 0)
ID = TopicIdentity("cluster-1", "id")
CLOCK = HandClock(NOW.timestamp() * 1000 + 10**12)


def backup_with_ledger(
    *cuts: range, views: tuple[ViewSpec, ...] = RECORD, into: Backup | None = None
) -> tuple[Backup, list[str]]:
    """A backup of ``orders`` as a sink leaves it, and its keys."""
    backup = Backup() if into is None else into
    topics = [TopicEntry("topic", "orders", "cluster-1", "id", 1)]
    place.of_topics(backup.store, backup.layout, CLOCK).append(table(topics, TOPICS))
    keys = backup.put("orders", 0, *cuts, views=views, identity=ID)
    for key, cut in zip(keys, cuts, strict=True):
        enter(backup, key, cut)
    return backup, keys


def enter(backup: Backup, key: str, cut: range, *, after_ms: int = 0) -> None:
    """Enter an object into the ledger, as its sink does when it is stored, or that much later."""
    head = backup.store.head(key)
    assert head is not None
    facts = Facts.from_metadata(head.metadata)
    assert facts is not None
    time_ms = int(head.modified.timestamp() * 1000) + after_ms
    span = Span(cut.start, cut.stop)
    view = View.RECORD if ".record." in key else View.VALUE
    row = stored(WHERE, key, view, facts, head.size, span, "r1", time_ms)
    place.of_topic(backup.store, backup.layout, "orders", CLOCK).append(table([row], OBJECTS))


def mending(backup: Backup) -> Mending:
    """What mends the ledger of *backup*."""
    summary = Summary("r2", "restore verify")
    return Mending(backup.store, backup.layout, ReadOptions(), summary, CLOCK)


def rows(backup: Backup, *, deep: bool) -> list[tuple[int | None, list[str]]]:
    """Records of each partition as a verify counts them, and the codes of its findings."""
    summary, reading = Summary("r2", "restore verify"), ReadOptions()
    notes = Notes(known.read(backup.store, backup.layout, CLOCK))
    read = here(backup, reading) if deep else None
    events = [
        *verify(backup.store, backup.layout, reading, summary, now=NOW, notes=notes, read=read)
    ]
    codes = [event["code"] for event in events if event["type"] == "finding"]
    return [(row["records"], codes) for row in summary.partitions]


def verified(backup: Backup, *, deep: bool = False) -> tuple[int, list[dict[str, Any]]]:
    """Exit code and findings of a verify, shallow if nothing else is said."""
    summary, reading = Summary("r2", "restore verify"), ReadOptions()
    notes = Notes(known.read(backup.store, backup.layout, CLOCK))
    read = here(backup, reading) if deep else None
    events = [
        *verify(backup.store, backup.layout, reading, summary, now=NOW, notes=notes, read=read)
    ]
    return summary.exit_code(), [event for event in events if event["type"] == "finding"]


def damage(backup: Backup, folder: str) -> None:
    """Overwrite every file of a part of the ledger."""
    for entry in [*backup.store.list(place.folder(backup.layout) + folder)]:
        backup.store.put(entry.key, io.BytesIO(b"no Parquet"), sha256="", metadata={})


def test_a_missing_object_is_named_by_the_ledger() -> None:
    """
    With its key and offsets, without any run record, and whoever stored it.
    """
    backup, keys = backup_with_ledger(range(10), range(10, 20), range(20, 30))
    backup.store.delete(keys[1])

    code, findings = verified(backup)

    assert (7, [("missing_object", keys[1], [10, 19])]) == (
        code, [(one["code"], one["key"], one["offsets"]) for one in findings],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("cuts", "shallow", "deep", "codes"),
    [
        pytest.param([range(10), range(5, 15)], 15, 15, {"overlap"}, id="two"),
        pytest.param(
            [range(20), range(5, 10), range(8, 25)], 25, 25, {"overlap"}, id="one over two"
        ),
        pytest.param(
            [range(0, 20, 2), range(5, 15)], None, 15, {"overlap"}, id="offsets are missing"
        ),
        pytest.param([range(0, 20, 2), range(19, 25)], 16, 16, set(), id="no overlap"),
    ],
)
def test_records_in_several_objects_are_counted_once(
    cuts: list[range], shallow: int | None, deep: int, codes: set[str]
) -> None:
    """
    Names and ledger alone say how many they are, or that this is not known.
    """
    backup, _ = backup_with_ledger(*cuts)

    (names, named), (read, found) = (rows(backup, deep=way)[0] for way in (False, True))

    assert (shallow, deep) == (names, read)
    assert (codes, codes) == (set(named), set(found))


@pytest.mark.parametrize(
    ("cuts", "shallow", "deep"),
    [
        pytest.param({"a": (range(10),), "b": (range(5, 15),)}, 15, 15, id="other cuts"),
        pytest.param(
            {"a": (range(0, 20, 2),), "b": (range(1, 20, 2),)}, 20, 20, id="one cut, side by side"
        ),
        pytest.param(
            {"a": (range(0, 20, 2),), "b": (range(1, 20, 2),), "c": (range(10, 30),)},
            30, 30, id="a later cut over both of one",
        ),
        pytest.param({"a": (range(0, 10, 2),), "b": (range(4, 12),)}, None, 10, id="lacking"),
    ],
)  # fmt: skip
def test_records_in_several_directories_are_counted_once(
    cuts: dict[str, tuple[range]], shallow: int | None, deep: int
) -> None:
    """
    A retry by another partitioner, or by the clock's, leaves the same records in other directories.
    """
    backup, _ = backup_with_ledger()
    for directory, (offsets,) in cuts.items():
        key = backup.put_in(directory, "orders", 0, offsets)
        cut = range(20) if offsets.step == 2 and offsets.stop == 20 else offsets
        enter(backup, key, cut)

    (names, _), (read, found) = (rows(backup, deep=way)[0] for way in (False, True))

    assert (shallow, deep, []) == (names, read, found)


def test_other_records_in_another_directory_are_an_error() -> None:
    """
    A restore merges directories by offset, so two records of one offset would stop it.
    """
    backup, _ = backup_with_ledger()
    enter(backup, backup.put_in("a", "orders", 0, range(5)), range(5))
    key = backup.put_in("b", "orders", 0, batch(range(3, 6), value=b"another"))
    enter(backup, key, range(3, 6))

    [(_, codes)] = rows(backup, deep=True)

    assert ["overlap"] == codes


def test_the_command_that_backs_offsets_up_again_is_named() -> None:
    """
    With the place of each object that is missing.
    """
    backup, keys = backup_with_ledger(range(10), range(10, 20), range(20, 30))
    backup.store.delete(keys[1])
    backup.store.delete(keys[2])
    summary = Summary("r2", "restore verify")
    notes = Notes(known.read(backup.store, backup.layout, CLOCK))

    events = [*verify(backup.store, backup.layout, ReadOptions(), summary, now=NOW, notes=notes)]

    (text,) = (one["text"] for one in events if one.get("code") == "repair")
    assert "kbackup sink --repair orders:0:10,orders:0:20 with the sink's" in text


def test_an_object_that_holds_less_than_was_stored_is_found_without_reading_it() -> None:
    """
    A slow write of an earlier, shorter one landed on it.
    """
    backup, keys = backup_with_ledger(range(30))
    shorter = Backup()
    (key,) = shorter.put("orders", 0, range(20), identity=ID)
    head = shorter.store.head(key)
    assert head is not None
    backup.replace(keys[0], shorter.body(key), head.metadata)

    code, (finding,) = verified(backup)

    assert (7, "count_mismatch", keys[0]) == (code, finding["code"], finding["key"])
    assert "20 records up to offset 19; 30" in finding["text"]


def test_an_object_that_grew_since_the_ledger_was_read_is_no_error() -> None:
    """
    Its row comes after it; until then that it holds more is said.
    """
    backup, keys = backup_with_ledger(range(20))
    backup.put("orders", 0, range(30), identity=ID)

    code, (finding,) = verified(backup)

    assert (0, "note", keys[0]) == (code, finding["level"], finding["key"])
    assert "30 records up to offset 29; 20 records" in finding["text"]


def test_growth_that_no_later_run_has_entered_is_an_error() -> None:
    """
    A legitimate one would have a row by now; if it is right, a rebuild enters it.
    """
    backup, keys = backup_with_ledger(range(20))
    backup.put("orders", 0, range(30), identity=ID)
    (later,) = backup.put("orders", 0, range(30, 40), identity=ID)
    enter(backup, later, range(30, 40), after_ms=3_600_000)

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
    ],
)  # fmt: skip
def test_another_object_in_a_stored_ones_place_is_found(
    stranger: Callable[[Backup], list[str]], code: str, text: str, deep: bool
) -> None:
    """
    However many records it has: the ledger, its metadata and the file must agree.
    """
    backup, keys = backup_with_ledger(range(20))
    other = Backup()
    (key,) = stranger(other)
    head = other.store.head(key)
    assert head is not None
    backup.replace(keys[0], other.body(key), head.metadata)

    exit_code, findings = verified(backup, deep=deep)

    assert (7, [(code, keys[0])]) == (exit_code, [(one["code"], one["key"]) for one in findings])
    assert text in findings[0]["text"]


@pytest.mark.parametrize("deep", [False, True], ids=["names", "deep"])
def test_values_of_another_partition_are_no_growth(deep: bool) -> None:
    """
    They begin at the same offset and are more, but their metadata says whose they are.
    """
    backup, (key,) = backup_with_ledger(range(3), views=JSON)
    (other,) = (elsewhere := Backup()).put("orders", 1, range(5), views=JSON, identity=ID)
    head = elsewhere.store.head(other)
    assert head is not None
    backup.replace(key, elsewhere.body(other), head.metadata)

    code, findings = verified(backup, deep=deep)

    assert (7, [("wrong_topic", key)]) == (code, [(one["code"], one["key"]) for one in findings])


def test_a_copy_of_another_object_is_found_though_its_format_says_nothing() -> None:
    """
    The ledger knows its bytes by their checksum.
    """
    backup, (first, second) = backup_with_ledger(range(3), range(3, 9), views=JSON)
    head = backup.store.head(second)
    assert head is not None
    facts = {**head.metadata, "first-offset": "0"}  # as a tool would that edits what it copies
    backup.replace(first, backup.body(second), facts)

    code, findings = verified(backup)

    assert (7, ["corrupt"]) == (code, [one["code"] for one in findings])
    assert f"it is a copy of {second}" == findings[0]["text"]


def test_the_ledger_vouches_for_an_object_that_has_lost_its_metadata(tmp_path: Path) -> None:
    """
    Its bytes are compared with the checksum that was stored; plain JSON has no other.
    """
    backup, (key,) = backup_with_ledger(range(20), views=JSON, into=Backup.in_folder(tmp_path))
    (tmp_path / ".kbackup" / "facts" / key).unlink()
    assert (0, []) == verified(backup, deep=True)

    path = backup.path(key)
    path.write_bytes(path.read_bytes().replace(b"19", b"91"))

    assert (0, []) == verified(backup)  # of the same size, and nothing says more
    code, findings = verified(backup, deep=True)
    assert (7, [("corrupt", key)]) == (code, [(one["code"], one["key"]) for one in findings])


def test_an_object_of_another_size_under_the_same_facts_is_found() -> None:
    """
    Metadata that was copied with it does not vouch for it.
    """
    backup, (key,) = backup_with_ledger(range(20))
    head = backup.store.head(key)
    assert head is not None
    body = io.BytesIO(backup.body(key) + b"x")
    backup.store.put(key, body, sha256=head.metadata["sha256"], metadata=head.metadata)

    code, findings = verified(backup)

    assert (7, ["corrupt"]) == (code, [one["code"] for one in findings])
    assert "were stored" in findings[0]["text"]


@pytest.mark.parametrize("folder", ["objects/", "topics/", ""])
def test_a_damaged_ledger_is_reported_and_rebuilt_from_the_objects(folder: str) -> None:
    """
    As if nothing had happened; also which topic it is, which the objects say.
    """
    backup, keys = backup_with_ledger(range(10), range(10, 20))
    damage(backup, folder)

    assert 7 == verified(backup)[0]
    events = [*mending(backup).rebuild()]

    assert ["ledger_rebuilt"] == [event["code"] for event in events]
    assert (0, []) == verified(backup)
    said = known.read(backup.store, backup.layout, CLOCK)
    assert ID == said.topics["orders"].identity
    assert {*keys} == set(said.ledger(WHERE).objects)
    assert 20 == said.ledger(WHERE).end({*keys})


def test_a_rebuilt_ledger_still_misses_what_is_gone() -> None:
    """
    Only somebody's word ends that.
    """
    backup, keys = backup_with_ledger(range(10), range(10, 20))
    backup.store.delete(keys[0])

    list(mending(backup).rebuild())

    assert 7 == verified(backup)[0]


@pytest.mark.parametrize(
    "acceptance",
    [Acceptance.parse(["orders:0:0-9"], None), Acceptance.parse([], "2999-01-01")],
    ids=["by offsets", "by date"],
)
def test_what_was_removed_on_purpose_is_not_missed_again(acceptance: Acceptance) -> None:
    """
    But other objects are.
    """
    backup, keys = backup_with_ledger(range(10), range(10, 20))
    backup.store.delete(keys[0])

    events = [*mending(backup).accept(acceptance)]

    assert ["accepted_missing"] == [event["code"] for event in events]
    assert 0 == verified(backup)[0]
    backup.store.delete(keys[1])
    assert 7 == verified(backup)[0]


def test_nothing_is_accepted_that_was_not_named() -> None:
    """
    Other offsets, another partition, or a date before it was stored.
    """
    backup, keys = backup_with_ledger(range(10), range(10, 20))
    backup.store.delete(keys[0])

    for ranges, before in ((["orders:0:0-8"], None), (["orders:1:0-9"], None), ([], "2001-01-01")):
        list(mending(backup).accept(Acceptance.parse(ranges, before)))

    assert 7 == verified(backup)[0]


def test_what_an_earlier_version_lost_is_accepted_too() -> None:
    """
    Only its run records speak of it; what is there is taken over.
    """
    backup = Backup()
    keys = backup.run("orders", 0, range(10), range(10, 20), range(20, 30))
    history.write_run(backup.store, backup.layout, backup.runs[0])
    backup.store.delete(keys[1])
    assert 7 == verified(backup)[0]

    list(mending(backup).accept(Acceptance.parse(["orders:0:10-19"], None)))

    assert 0 == verified(backup)[0]
    found = place.of_topic(backup.store, backup.layout, "orders", CLOCK).read()
    assert {"accepted", "missing", "object"} == {entry.kind for entry in entries(found.rows)}


def test_what_was_lost_before_the_ledger_is_not_missed_once_it_was_backed_up_again() -> None:
    """
    Run records speak of two objects; the next run, which begins at the start, makes one of them.
    """
    backup = Backup()
    keys = backup.run("orders", 0, range(10), range(10, 20))
    history.write_run(backup.store, backup.layout, backup.runs[0])
    for key in keys:
        backup.store.delete(key)
    list(mending(backup).accept(Acceptance.parse(["orders:1:0-1"], None)))  # begins the ledger
    assert 7 == verified(backup)[0]

    [key] = backup.put("orders", 0, range(20), identity=ID)
    enter(backup, key, range(20))

    assert 0 == verified(backup)[0]


@pytest.mark.parametrize("text", ["orders:0", "orders:0:9-1", "a/b:0:1-2", "orders:x:1-2"])
def test_what_is_no_range_is_a_usage_error(text: str) -> None:
    """
    Before anything is asked of the bucket.
    """
    with pytest.raises(ConfigurationError, match="is not a range of offsets"):
        Acceptance.parse([text], None)


def test_what_is_no_date_is_a_usage_error() -> None:
    """
    ISO dates and times are read, in UTC where they do not say.
    """
    assert Acceptance.parse([], "1970-01-02").before_ms == 86_400_000
    with pytest.raises(ConfigurationError, match="is not a date"):
        Acceptance.parse([], "yesterday")
