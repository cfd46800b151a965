"""Values and full records over the same offsets: each record comes back once, or it is refused."""

import gzip
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
from backup_samples import BYTES, JSON, RECORD, SIBLINGS, Backup
from record_samples import batch_of, write

from kbackup.catalog.ledger.rows import ACCEPTED, of_object
from kbackup.errors import ConfigurationError, IncompleteBackupError, KbackupError, RefusedError
from kbackup.formats import FormatOptions, by_name
from kbackup.naming import View
from kbackup.pipeline.views import ViewSpec
from kbackup.restore.transaction import RateLimit
from kbackup.stores import ObjectHead
from kbackup.stores.memory import MemoryStore
from tests.support.target import CrashError, Restoring, values
from tests.support.verified import Verified


def connector(backup: Backup, *cuts: Sequence[int]) -> list[str]:
    """Store objects as a connector does, which say nothing of themselves."""
    keys = backup.put("orders", 0, *cuts, views=JSON)
    for key in keys:
        backup.replace(key, backup.body(key), {})
    return keys


def test_a_connectors_object_that_reaches_beyond_full_records_is_named(again: Restoring) -> None:
    """A sink that died on its way over a connector's objects hides none of their records."""
    backup = again.backup
    _, reaching = connector(backup, range(100), range(100, 200))
    backup.put("orders", 0, range(100), range(100, 150))

    with pytest.raises(RefusedError) as refused:
        again.restore()
    verified = Verified(backup)

    assert f"orders-0: {reaching}" == refused.value.what
    assert (7, [("overlap", reaching)]) == (verified.exit_code, verified.errors)

    backup.put("orders", 0, range(150, 200))
    again.restore()

    assert values(range(200)) == again.cluster.values("copy_of_orders")
    assert 0 == Verified(backup).exit_code


def field(backup: Backup, directories: int, *cuts: range) -> None:
    """Store objects as a connector does whose partitioner takes a directory for each remainder."""
    for cut in cuts:
        for rest in range(directories):
            (key,) = backup.put(
                "orders", 0, [at for at in cut if at % directories == rest], views=JSON
            )
            body = backup.body(key)
            backup.store.delete(key)
            backup.replace(key, body, {}, to=key.replace("partition=0", f"d={rest}"))


EVEN = range(0, 200, 2)


@pytest.mark.parametrize("died", [60, 80, 99])
def test_rows_of_a_log_with_gaps_do_not_tell_where_a_connectors_object_ends(
    again: Restoring, died: int
) -> None:
    """Markers leave fewer records than offsets: what reaches beyond is named all the same."""
    (key,) = connector(again.backup, EVEN)
    again.backup.put("orders", 0, EVEN[:died])

    with pytest.raises(RefusedError, match="reaches beyond their end") as refused:
        again.restore()

    assert key in refused.value.what
    assert (7, [("overlap", key)]) == (
        Verified(again.backup).exit_code,
        Verified(again.backup).errors,
    )

    again.backup.put("orders", 0, EVEN)
    again.restore()

    assert values(EVEN) == again.cluster.values("copy_of_orders")
    assert 0 == Verified(again.backup).exit_code


@pytest.mark.parametrize("views", [JSON, RECORD], ids=["values", "full records"])
def test_others_that_begin_within_a_connectors_object_with_gaps_are_seen(
    again: Restoring, views: tuple[ViewSpec, ...]
) -> None:
    """Fewer rows than offsets up to the others do not show that it ends before them."""
    (key,) = connector(again.backup, EVEN[:50])
    again.backup.put("orders", 0, EVEN[30:], views=views)

    with pytest.raises(RefusedError, match="another begins that holds the same") as refused:
        again.restore()

    assert key in refused.value.what


@pytest.mark.parametrize("views", [JSON, RECORD], ids=["values", "full records"])
@pytest.mark.parametrize("closed", [1, 2], ids=["unfinished", "whole"])
@pytest.mark.parametrize("rows", [30, 31, 32, 50])
def test_others_in_several_directories_are_seen_within_a_connectors_object(
    again: Restoring, rows: int, closed: int, views: tuple[ViewSpec, ...]
) -> None:
    """What lies in one of two directories is a share of the records that a connector has in one."""
    connector(again.backup, EVEN[:rows])
    parts = [EVEN[30:][rest::2] for rest in range(closed)]
    for rest, part in enumerate(parts):
        key = again.backup.put_in(f"d={rest}", "orders", 0, part, views=views)
        head = again.backup.store.head(key)
        assert head is not None
        cut = {"cut-start": "60", "cut-end": "199", "cut-files": "2"}
        again.backup.replace(key, again.backup.body(key), {**head.metadata, **cut})

    if rows > 30:
        with pytest.raises(RefusedError, match="another begins that holds the same"):
            again.restore()
        return
    again.restore()

    expected = Counter(values(EVEN[:30], *parts))
    assert expected == Counter(again.cluster.values("copy_of_orders"))


def enveloped(at: int) -> bytes:
    """A record as Kafka Connect's JsonConverter writes it, whose schema has a name of its own."""
    schema = b'{"type":"struct","name":"a","fields":[{"type":"int64","field":"n"}]}'
    return b'{"schema":%s,"payload":{"n":%d}}' % (schema, at)


def registered(at: int) -> bytes:
    """A record as AvroConverter writes it: the schema's id, and a datum of a long and a text."""
    text = b"record %d" % at
    return b"\0\0\0\0\7" + bytes([2 * at, 2 * len(text)]) + text


def quoted(at: int) -> bytes:
    """A record as StringConverter writes it, which is no JSON without its quotes."""
    return b"record %d" % at


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (quoted, "json"), (enveloped, "avro"), (enveloped, "json"), (registered, "avro"),
        (registered, "parquet"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("encloses", [False, True], ids=["as it is", "in another envelope"])
@pytest.mark.parametrize("begin", [1, 2, 3, 6, 10])
def test_rows_without_what_a_converter_puts_around_them_are_compared(
    again: Restoring, value: Callable[[int], bytes], kind: str, begin: int, encloses: bool
) -> None:
    """The number of rows in one of several directories does not show where they end."""
    rows = [{"n": at, "text": f"record {at}"} for at in range(1, 10, 2)]
    column = pa.array(rows if value is registered else [{"n": row["n"]} for row in rows])
    typed = pa.struct([pa.field(one.name, one.type, nullable=False) for one in column.type])
    written = column.cast(typed)
    if kind == "json":
        texts = [value(n).decode() if encloses else f'{{"n":{n}}}' for n in range(1, 10, 2)]
        texts = [f'"{row["text"]}"' for row in rows] if value is quoted else texts
        written = pa.array(texts, pa.json_())
    body = write(by_name(kind), View.VALUE, [pa.record_batch([written], ["value"])])
    extension = by_name(kind).extension(FormatOptions())
    again.backup.replace(f"topics/orders/d=1/orders+0+0000000001{extension}", body, {})
    again.backup.put(
        "orders", 0, batch_of([{"offset": at, "value": value(at)} for at in range(begin, 15)])
    )

    reading: dict[str, Any] = {}
    if encloses:  # what a restore would put around rows without a schema is no part of them either
        reading = {"value_converter": "json", "value_converter_schemas_enable": True}
    if begin in (1, 10):
        again.restore(**reading)
        assert {1: 14, 10: 10}[begin] == len(again.cluster.values("copy_of_orders"))
    else:
        with pytest.raises(RefusedError, match="begins"):
            again.restore(**reading)


def renamed(at: int) -> bytes:
    """A record that a connector's transform gives another name of its field."""
    return b'{"number":%d}' % at


def in_protobuf(at: int) -> bytes:
    """A record as ProtobufConverter writes it: the schema's id, which message, and a field."""
    return b"\0\0\0\0\7\0\x08" + bytes([at])


def binary(at: int) -> bytes:
    """A record that is no text, of which JSON files keep base64."""
    return bytes([255, at])


def transformed(backup: Backup, *cuts: Sequence[int]) -> list[str]:
    """Store objects of a connector whose rows are like no record."""
    keys = [f"topics/orders/partition=0/orders+0+{cut[0]:010}.json" for cut in cuts]
    for key, cut in zip(keys, cuts, strict=True):
        backup.replace(key, b"".join(b'{"n":%d}\n' % at for at in cut), {})
    return keys


@pytest.mark.parametrize("value", [renamed, in_protobuf, binary])
@pytest.mark.parametrize(
    ("cuts", "whole", "is_told"),
    [
        pytest.param([EVEN[:50]], EVEN[30:], False, id="reaching into them"),
        pytest.param([EVEN[:30]], EVEN[15:], False, id="as many rows as offsets"),
        pytest.param([[0, 2, 3]], [3, 4, 5], False, id="as many rows, others without gaps"),
        pytest.param([EVEN[:30]], EVEN[30:], False, id="fewer rows than offsets"),
        pytest.param([range(60)], range(60, 100), False, id="ending there, for all one sees"),
        pytest.param([range(60), range(60, 90, 3)], range(80), False, id="a share, beyond them"),
        pytest.param([range(60), range(60, 90)], range(200), False, id="inside, for all one sees"),
        pytest.param(
            [range(0, 60, 2), range(60, 100, 2), range(100, 120)],
            range(60, 100), True, id="each before the next name",
        ),
    ],
)  # fmt: skip
def test_rows_that_cannot_be_compared_are_named_where_no_name_shows_their_end(
    again: Restoring,
    value: Callable[[int], bytes],
    cuts: list[Sequence[int]],
    whole: Sequence[int],
    *,
    is_told: bool,
) -> None:
    """They may hold records that come again, or that nothing else holds; no count tells."""
    keys = transformed(again.backup, *cuts)
    rows = [{"offset": at, "value": value(at)} for at in whole]
    again.backup.put("orders", 0, batch_of(rows))

    if not is_told:
        last = max(key for key, cut in zip(keys, cuts, strict=True) if cut[0] <= whole[-1])
        with pytest.raises(RefusedError, match="unlike") as refused:
            again.restore()
        assert last in refused.value.what
        assert (7, [("overlap", last)]) == (
            Verified(again.backup).exit_code,
            Verified(again.backup).errors,
        )
        return
    again.restore()

    assert len({*whole}.union(*cuts)) == len(again.cluster.values("copy_of_orders"))
    assert 0 == Verified(again.backup).exit_code


def note(at: int) -> bytes:
    """A record without the field that the others have."""
    return b'{"note":%d}' % at


def other(at: int) -> bytes:
    """A record of a third form."""
    return b'{"other":%d}' % at


@pytest.mark.parametrize(
    ("objects", "taken_over"),
    [
        pytest.param([[note], [renamed] * 3], [[note] * 3], id="before"),
        pytest.param([[note] * 3, [renamed] * 3], [[other] * 2, [note]], id="before and behind"),
        pytest.param([[renamed]], [[note]], id="a single row"),
        pytest.param([[lambda at: b"%d" % at] * 2], [[lambda at: b"%d.5" % at]], id="numbers"),
    ],
)
@pytest.mark.parametrize("views", [JSON, RECORD], ids=["values", "full records"])
def test_records_of_another_form_follow_a_connectors_last_object(
    again: Restoring,
    objects: list[list[Callable[[int], bytes]]],
    taken_over: list[list[Callable[[int], bytes]]],
    views: tuple[ViewSpec, ...],
) -> None:
    """Records of several forms, as JSON without absent fields, are no transform's work."""
    expected: list[bytes] = []
    for number, kinds in enumerate([*objects, *taken_over]):
        begin = len(expected)
        expected += [kind(at) for at, kind in enumerate(kinds, begin)]
        rows = [{"offset": at, "value": expected[at]} for at in range(begin, len(expected))]
        is_ours = number >= len(objects)
        keys = again.backup.put("orders", 0, batch_of(rows), views=views if is_ours else JSON)
        for key in keys if not is_ours else ():
            again.backup.replace(key, again.backup.body(key), {})

    again.restore()

    assert expected == again.cluster.values("copy_of_orders")
    assert 0 == Verified(again.backup).exit_code


def test_as_many_rows_as_offsets_show_nothing_in_one_of_several_directories(
    again: Restoring,
) -> None:
    """Offsets that other directories have lie between them, so they reach further."""
    field(again.backup, 2, range(120))
    renames = [{"offset": at, "value": renamed(at)} for at in range(60, 100)]
    again.backup.put("orders", 0, batch_of(renames))

    with pytest.raises(RefusedError, match="unlike"):
        again.restore()

    named = {key for _, key in Verified(again.backup).errors if key is not None}
    assert {"d=0", "d=1"} == {key.split("/")[2] for key in named}


def test_json_that_is_too_deep_to_be_put_in_order_is_compared_as_it_is(again: Restoring) -> None:
    """A comparison does not end the run."""
    deep = [b"[" * 300 + b"%d" % at + b"]" * 300 for at in range(2)]
    again.backup.replace("topics/orders/partition=0/orders+0+0000000000.json", deep[0] + b"\n", {})
    again.backup.put("orders", 0, batch_of([{"offset": 1, "value": deep[1]}]))

    again.restore()

    assert deep == again.cluster.values("copy_of_orders")


def test_values_and_full_records_beside_a_connectors_object_are_both_compared(
    again: Restoring,
) -> None:
    """What it reaches into is full records further on, and values before."""
    field(again.backup, 2, range(71))
    again.backup.put("orders", 0, range(60, 100), views=JSON)
    again.backup.put("orders", 0, range(80, 200))

    with pytest.raises(RefusedError, match="reaches beyond offset 60"):
        again.restore()


@pytest.mark.parametrize(
    ("directories", "begun", "died", "is_refused"),
    [(2, 0, 160, True), (2, 0, 150, True), (3, 0, 125, True), (2, 60, 200, True),
     (2, 0, 200, False), (3, 0, 200, False)],
)  # fmt: skip
def test_objects_in_several_directories_are_compared_with_full_records(
    again: Restoring, directories: int, begun: int, died: int, *, is_refused: bool
) -> None:
    """Each has a share of the offsets only: all records come once, or an object is named."""
    field(again.backup, directories, range(100), range(100, 200 if not begun else 150))
    again.backup.put("orders", 0, range(begun, died))

    if is_refused:
        with pytest.raises(RefusedError, match=r"d=\d/orders"):
            again.restore()
        assert 7 == Verified(again.backup).exit_code
        return
    again.restore()

    assert values(range(200)) == again.cluster.values("copy_of_orders")
    assert 0 == Verified(again.backup).exit_code


def test_rows_of_another_converter_in_several_directories_are_not_counted(
    again: Restoring,
) -> None:
    """They are like no full record, and lie between those of other directories: it is refused."""
    field(again.backup, 2, range(100), range(100, 200))
    for entry in [*again.backup.store.list("topics/")]:
        text = again.backup.body(entry.key).replace(b'"n"', b'"of_avro"')
        again.backup.replace(entry.key, text, {})
    again.backup.put("orders", 0, range(160))

    with pytest.raises(RefusedError, match=r"d=\d/orders.*is unlike them"):
        again.restore()
    assert 7 == Verified(again.backup).exit_code


def test_a_log_with_gaps_goes_over_to_full_records(again: Restoring) -> None:
    """A connector's last object ends where the full records begin, though it has fewer rows."""
    connector(again.backup, EVEN[:25], EVEN[25:50])
    again.backup.put("orders", 0, EVEN[50:])

    again.restore()

    assert values(EVEN) == again.cluster.values("copy_of_orders")
    assert 0 == Verified(again.backup).exit_code


def test_dense_values_are_read_up_to_the_full_records(again: Restoring) -> None:
    """Full records from the middle of an object of values on replace the rest of it."""
    again.backup.put("orders", 0, range(50), range(50, 100), range(100, 150), views=JSON)
    again.backup.put("orders", 0, range(60, 110), range(110, 200))

    again.restore()

    assert values(range(200)) == again.cluster.values("copy_of_orders")


@pytest.mark.parametrize("policy", ["fail", "log"])
def test_a_connectors_object_that_reaches_into_the_next_stops_the_restore(
    again: Restoring, policy: str
) -> None:
    """It has more rows than offsets up to there: the next one may hold some of them too."""
    keys = connector(again.backup, range(5), range(5, 15), range(10, 20), range(20, 25))

    with pytest.raises(RefusedError, match="more rows than the 5 offsets") as refused:
        again.restore(on_error=policy)
    verified = Verified(again.backup, deep=True)

    assert keys[1] in refused.value.what
    assert values(range(5)) == again.cluster.values("copy_of_orders")
    assert (7, [("overlap", keys[1])]) == (verified.exit_code, verified.errors)


def test_an_object_that_turns_up_among_restored_rows_stops_the_restore(again: Restoring) -> None:
    """The rows behind its first offset may be its own: they would come twice."""
    connector(again.backup, range(10))
    again.restore()
    connector(again.backup, range(5, 15))

    with pytest.raises(RefusedError, match="more rows than the 5 offsets"):
        again.restore()

    assert values(range(10)) == again.cluster.values("copy_of_orders")


def test_values_below_restored_full_records_are_refused(again: Restoring) -> None:
    """A restore that has passed their offsets writes them neither late nor twice."""
    again.backup.put("orders", 0, range(50, 100))
    again.restore()
    connector(again.backup, range(50))

    with pytest.raises(RefusedError, match="below offset 100"):
        again.restore()

    assert values(range(50, 100)) == again.cluster.values("copy_of_orders")


def test_dense_values_are_read_from_the_end_of_the_full_records_on(again: Restoring) -> None:
    """Full records up to the middle of an object of values replace its beginning."""
    again.backup.put("orders", 0, range(50), range(50, 100), views=JSON)
    again.backup.put("orders", 0, range(60))

    again.restore()
    again.restore()

    assert values(range(100)) == again.cluster.values("copy_of_orders")


def test_values_with_holes_are_cut_by_no_guess(again: Restoring) -> None:
    """Which of their rows full records hold is not known, so they are named."""
    (holed,) = again.backup.put("orders", 0, [*range(0, 100, 2)], views=JSON)
    again.backup.put("orders", 0, range(60, 110))

    with pytest.raises(RefusedError) as refused:
        again.restore()

    assert f"orders-0: {holed}" == refused.value.what


def test_a_copy_in_another_directory_is_read_once(again: Restoring) -> None:
    """The same object in another directory is left out, with a note, also without a ledger."""
    backup = again.backup
    (key,) = backup.put("orders", 0, range(10), views=JSON)
    copy = key.replace("partition=0", "copied=0")
    backup.replace(key, backup.body(key), to=copy)

    again.restore()
    verified = Verified(backup)

    assert values(range(10)) == again.cluster.values("copy_of_orders")
    assert (0, ["overlap"]) == (verified.exit_code, [code for code, _ in verified.notes])


def test_what_a_tool_compressed_beside_the_original_is_read_once(again: Restoring) -> None:
    """Of two objects with the same rows the one with more of them is read."""
    backup = again.backup
    key, beyond = connector(backup, range(10), range(10, 12))
    longer = backup.body(key) + backup.body(beyond)
    backup.store.delete(beyond)
    backup.replace(key, gzip.compress(longer), {}, to=f"{key}.gz")

    again.restore()

    assert values(range(12)) == again.cluster.values("copy_of_orders")
    assert 0 == Verified(backup).exit_code


def test_values_of_other_records_at_one_offset_are_refused(again: Restoring) -> None:
    """More rows prove nothing where the first ones differ."""
    backup = again.backup
    key, beyond = connector(backup, range(10), range(10, 12))
    backup.replace(key, gzip.compress(backup.body(beyond)), {}, to=f"{key}.gz")

    with pytest.raises(RefusedError, match="both begin at this offset"):
        again.restore()

    assert 7 == Verified(backup).exit_code


def test_more_files_than_a_rotation_has_are_refused(again: Restoring) -> None:
    """Three files of a rotation of two: nobody can say which of them is another's."""
    backup = again.backup
    (first,) = backup.put("orders", 0, range(10), views=JSON)
    head = backup.store.head(first)
    assert head is not None
    rotation = {**head.metadata, "cut-end": "30", "cut-files": "2"}
    backup.replace(first, backup.body(first), rotation)
    for start in (10, 20):
        (key,) = backup.put("orders", 0, range(start, start + 10), views=JSON)
        head = backup.store.head(key)
        assert head is not None
        rotation = {**head.metadata, "cut-start": "0", "cut-end": "30", "cut-files": "2"}
        backup.replace(key, backup.body(key), rotation)

    with pytest.raises(RefusedError, match="of one rotation, of 2"):
        again.restore()

    assert 7 == Verified(backup).exit_code


def test_a_backup_is_all_of_its_objects_whatever_a_sink_writes_now(again: Restoring) -> None:
    """The format in a sink's file says what is written; it hides nothing that was stored before."""
    again.backup.put("orders", 0, range(100), views=JSON)
    again.backup.put("orders", 0, range(100, 200), views=BYTES)

    again.restore(format_class="bytes")
    plan = again.plan(format_class="bytes", rename="more_$0")

    assert values(range(200)) == again.cluster.values("copy_of_orders")
    ((text,),) = ([text for code, text in plan.topics[0].warnings if code == "own_converter"],)
    assert "orders: 1 json object that value.converter=bytes cannot read" in text


@pytest.mark.parametrize("first", [RECORD, JSON], ids=["full records", "values"])
def test_what_only_format_left_out_does_not_come_after_what_follows_it(
    again: Restoring, first: tuple[ViewSpec, ...]
) -> None:
    """A restore of one format goes on with all of them only where the order stays."""
    second, name = (JSON, "json") if first is RECORD else (RECORD, "parquet")
    again.backup.put("orders", 0, range(5), views=first)
    again.backup.put("orders", 0, range(5, 10), views=second)

    again.restore(only_format=name)
    with pytest.raises(RefusedError, match="not read before"):
        again.restore()

    assert values(range(5, 10)) == again.cluster.values("copy_of_orders")


def test_only_format_leaves_out_the_others(again: Restoring) -> None:
    """Whoever asks for one format alone gets its objects."""
    again.backup.put("orders", 0, range(100), views=JSON)
    again.backup.put("orders", 0, range(100, 200), views=BYTES)

    again.restore(only_format="json")

    assert values(range(100)) == again.cluster.values("copy_of_orders")


def test_full_records_before_values_of_one_format_are_refused(again: Restoring) -> None:
    """What a restore of one format has left out before its records can no longer come in order."""
    again.backup.put("orders", 0, range(5))
    again.backup.put("orders", 0, range(5, 10), views=JSON)
    again.restore(only_format="json")

    with pytest.raises(RefusedError, match="was not read before"):
        again.restore()

    assert values(range(5, 10)) == again.cluster.values("copy_of_orders")


def test_full_records_behind_values_of_one_format_come_with_the_next_restore(
    again: Restoring,
) -> None:
    """They follow what is there, so their order is kept."""
    again.backup.put("orders", 0, range(5), views=JSON)
    again.backup.put("orders", 0, range(5, 10))
    again.restore(only_format="json")

    again.restore()

    assert values(range(10)) == again.cluster.values("copy_of_orders")


def test_what_a_registrys_converter_cannot_make_again_is_refused_in_the_plan(
    again: Restoring,
) -> None:
    """JSON files keep no schemas, so the configuration is wrong, and not the backup."""
    (key,) = again.backup.put("orders", 0, range(10), views=JSON)
    registry = {
        "value_converter": "avro", "schema_registry_url": "http://127.0.0.1:1",
        "value_converter_schema_registry_url": "http://127.0.0.1:1",
    }  # fmt: skip

    plan = again.plan(format_class="json", **registry)

    (refusal,) = [one for one in plan.refusals if isinstance(one, ConfigurationError)]
    assert f"orders: 1 json object cannot be read: {key}" == refusal.what


def test_siblings_that_were_switched_on_later_are_used_where_they_are(again: Restoring) -> None:
    """Objects from before come back without keys, with one warning of the topic."""
    again.backup.put("orders", 0, range(10), views=JSON)
    again.backup.put("orders", 0, range(10, 20), views=SIBLINGS)

    plan = again.plan(format_class="json", store_kafka_keys=True)
    again.restore(format_class="json", store_kafka_keys=True)

    assert values(range(20)) == again.cluster.values("copy_of_orders")
    assert ["some_keys", "some_headers"] == [
        code for code, _ in plan.topics[0].warnings if code.startswith("some_")
    ]


class Counted(MemoryStore):
    """Counts how often it is asked for each object."""

    asked: Counter[str]

    def head(self, key: str) -> ObjectHead | None:
        """Return what is known of an object."""
        self.asked[key] += 1
        return super().head(key)


@pytest.mark.parametrize("is_windowed", [False, True])
def test_each_object_is_asked_once(
    again: Restoring, monkeypatch: pytest.MonkeyPatch, *, is_windowed: bool
) -> None:
    """What no ledger states costs a plan, and a verify, one request for each object."""
    # of a connector's last object nothing says where it ends: it is compared with the next
    keys = connector(again.backup, range(50), range(50, 100))
    keys += again.backup.put("orders", 0, range(100, 150), views=JSON)
    keys += again.backup.put("orders", 0, range(150, 200))
    store = Counted(again.backup.settings)
    store.asked = Counter()
    monkeypatch.setattr(Backup, "store", store)

    again.plan(**({"from_offset": "50"} if is_windowed else {}))
    planned, store.asked = store.asked, Counter()
    Verified(again.backup)

    expected = Counter(keys)
    expected.update(keys[1:3])
    assert expected == planned
    assert expected == store.asked


class FewAtOnce(RateLimit):
    """Writes three records at once."""

    def rows(self, count: int, size: int) -> int:
        """Return how many rows to write at once."""
        del count, size
        return 3


@pytest.mark.parametrize("crash_at", range(1, 13))
def test_a_restore_that_died_between_two_parts_of_an_object_goes_on(
    again: Restoring, monkeypatch: pytest.MonkeyPatch, crash_at: int
) -> None:
    """Values before and after full records are parts of one object: each is continued by itself."""
    monkeypatch.setattr("kbackup.restore.transaction.TRANSACTION_RECORDS", 1)
    again.pace = FewAtOnce()
    again.backup.put("orders", 0, range(10), range(10, 30), range(30, 34), views=JSON)
    again.backup.put("orders", 0, range(15, 22))

    with suppress(CrashError):
        again.restore(crash_at=crash_at)
    with suppress(CrashError):
        again.restore(crash_at=2)
    again.restore()
    again.restore()

    assert values(range(34)) == again.cluster.values("copy_of_orders")


@pytest.mark.parametrize(
    ("full", "why"),
    [
        pytest.param(range(6, 30), "full records have replaced", id="the last object is left out"),
        pytest.param(range(14, 30), "full records have replaced", id="a part of it is left out"),
        pytest.param(range(30), "full records have replaced", id="all are left out"),
        pytest.param(
            range(6, 10), "were added, changed", id="a part of an earlier one is left out"
        ),
    ],
)
def test_full_records_over_values_that_were_restored_are_refused(
    again: Restoring, full: range, why: str
) -> None:
    """What came in over rows that a restore has passed would be written twice."""
    again.backup.put("orders", 0, range(10), range(10, 20), views=JSON)
    again.restore()
    again.backup.put("orders", 0, full)

    with pytest.raises(KbackupError, match=why):
        again.restore()

    assert values(range(20)) == again.cluster.values("copy_of_orders")


def unfinished(backup: Backup) -> None:
    """Store one of three files of a cut of full records."""
    (part,) = backup.put("orders", 0, [0, 3, 6, 9])
    head = backup.store.head(part)
    assert head is not None
    backup.replace(part, backup.body(part), {**head.metadata, "cut-files": "3"})


def test_values_beside_full_records_of_an_unfinished_cut_are_kept(again: Restoring) -> None:
    """A part of a cut in several directories accounts for none of the records of the others."""
    unfinished(again.backup)
    again.backup.put("orders", 0, range(15), views=JSON)

    again.restore()

    assert values(range(15)) == again.cluster.values("copy_of_orders")


def test_values_that_have_a_part_of_an_unfinished_cut_are_refused(again: Restoring) -> None:
    """Which of the records both have is not known."""
    unfinished(again.backup)
    again.backup.put("orders", 0, range(5), views=JSON)

    with pytest.raises(RefusedError, match="a run has left unfinished"):
        again.restore()


@pytest.mark.parametrize("cut", [pytest.param(0, id="before others"), pytest.param(1, id="last")])
def test_keys_of_values_that_were_removed_on_purpose_stop_nothing(
    again: Restoring, cut: int
) -> None:
    """What is left beside values holds no record: the ledger says what became of the values."""
    backup = again.backup
    keys = backup.run("orders", 0, range(4), range(4, 9), views=SIBLINGS)
    *_, value = keys[3 * cut : 3 * cut + 3]
    entry = backup.entry(value)
    backup.store.delete(value)
    assert (7, [("missing_object", value)]) == (Verified(backup).exit_code, Verified(backup).errors)

    backup.entries["orders"].append(of_object(ACCEPTED, entry, "r2", entry.time + 1))
    again.restore()

    assert values(range(4, 9) if cut == 0 else range(4)) == again.cluster.values("copy_of_orders")
    assert (0, []) == (Verified(backup).exit_code, Verified(backup).errors)


@pytest.mark.parametrize("folder", ["partition=0", "hour=1"])
def test_keys_that_a_run_was_cut_off_after_stop_nothing(again: Restoring, folder: str) -> None:
    """The next run need not store keys, nor files of the same names: it committed none of them."""
    backup = again.backup
    backup.run("orders", 0, range(4), views=SIBLINGS)
    keys, headers, value = backup.put("orders", 0, range(4, 9), views=SIBLINGS)
    backup.store.delete(value)
    if folder != "partition=0":
        for key in (keys, headers):
            moved = key.replace("partition=0", folder)
            backup.replace(key, backup.body(key), to=moved)
            backup.store.delete(key)
    backup.run("orders", 0, range(4, 6), range(6, 9), views=JSON)

    again.restore()

    assert values(range(9)) == again.cluster.values("copy_of_orders")
    assert (0, []) == (Verified(backup).exit_code, Verified(backup).errors)


def test_keys_alone_of_which_nothing_is_known_are_named(again: Restoring) -> None:
    """They may be of tombstones, in a directory that the configuration does not name."""
    backup = again.backup
    keys, _, _ = backup.put("orders", 0, range(4), views=SIBLINGS)
    moved = keys.replace("partition=0", "deleted")
    backup.replace(keys, backup.body(keys), {}, to=moved)

    with pytest.raises(IncompleteBackupError):
        again.restore()
    assert (7, [("missing_object", moved)]) == (
        Verified(backup).exit_code,
        Verified(backup).errors,
    )


def test_keys_that_were_removed_on_purpose_are_not_missed(again: Restoring) -> None:
    """Who has accepted that they are gone gets the values without them."""
    backup = again.backup
    keys, headers, *_ = backup.run("orders", 0, range(4), range(4, 9), views=SIBLINGS)
    entry = backup.entry(keys)
    backup.store.delete(keys)
    assert (7, [("missing_object", keys)]) == (Verified(backup).exit_code, Verified(backup).errors)

    backup.entries["orders"].append(of_object(ACCEPTED, entry, "r2", entry.time + 1))
    again.restore()

    assert values(range(9)) == again.cluster.values("copy_of_orders")
    assert (0, []) == (Verified(backup).exit_code, Verified(backup).errors)

    backup.store.delete(headers)
    with pytest.raises(IncompleteBackupError, match=r"headers.* is missing"):
        again.restore(rename="another_of_$0")


def test_where_each_format_has_an_end_of_its_own_they_are_restored_one_after_the_other(
    again: Restoring,
) -> None:
    """What the refusal says to do brings everything back, in order."""
    transformed(again.backup, range(60))
    rows = [{"offset": at, "value": renamed(at)} for at in range(60, 100)]
    again.backup.put("orders", 0, batch_of(rows))

    with pytest.raises(RefusedError, match="unlike") as refused:
        again.restore()
    for name in ("json", "parquet"):
        again.restore(only_format=(name,))

    assert "--only-format" in refused.value.do
    expected = [b'{"n":%d}' % at for at in range(60)] + [renamed(at) for at in range(60, 100)]
    assert expected == again.cluster.values("copy_of_orders")
