"""Objects of values and keys are read by what they were written with, not what is set now."""

from dataclasses import replace
from decimal import Decimal
from itertools import permutations
from pathlib import Path, PurePath
from typing import Any

import pyarrow as pa
import pytest
from backup_samples import BYTES, JSON, OPTIONS, RECORD, batch

from kbackup.errors import ConfigurationError, CorruptObjectError
from kbackup.formats import FormatOptions
from kbackup.naming import View
from kbackup.pipeline.views import ReadOptions, ViewSpec, written_metadata, written_of
from kbackup.records import SCHEMA, Span
from kbackup.runs import wiring
from tests.support.standby import Standby
from tests.support.target import COPY, Restoring, values
from tests.support.verified import Verified

SEPARATOR = "format.bytearray.separator"
WIDTH = "fixed.width"

CONVERTERS: dict[str, tuple[str, dict[str, Any]]] = {
    "string": ("string", {}),
    "json": ("json", {"schemas.enable": False}),
    "envelopes": ("json", {"schemas.enable": True}),
}
TEXTS = {"string": b'"v%d"', "json": b'"v%d"', "envelopes": b'{"schema":null,"payload":"v%d"}'}


def json_of(name: str) -> tuple[ViewSpec, ...]:
    """JSON files of keys and of values, of one converter."""
    converter, properties = CONVERTERS[name]
    return tuple(
        ViewSpec(view, "json", OPTIONS, converter, properties) for view in (View.KEY, View.VALUE)
    )


def separated(separator: str | None) -> tuple[ViewSpec, ...]:
    """Files of raw values with a separator."""
    values = {} if separator is None else {SEPARATOR: separator}
    return (replace(BYTES[0], options=FormatOptions(values)),)


def of_width(width: Any) -> tuple[ViewSpec, ...]:
    """Files of values that have so many bytes each, which only a plugin's option says."""
    options = FormatOptions({WIDTH: width})
    return (ViewSpec(View.VALUE, "fixed", options, "bytes"),)


def rows(start: int, text: bytes) -> pa.RecordBatch:
    """Three records whose keys and values are of *text*."""
    found = batch(range(start, start + 3))
    texts = pa.array([text % at for at in range(start, start + 3)], pa.binary())
    return pa.RecordBatch.from_arrays(
        [texts if name in ("key", "value") else found[name] for name in SCHEMA.names], schema=SCHEMA
    )


def restored(again: Restoring, reading: ReadOptions) -> list[tuple[bytes | None, bytes | None]]:
    """What a restore writes: keys and values."""
    cluster = replace(again, cluster=type(again.cluster)())
    cluster.restore(reading=reading)
    return [(row["key"], row["value"]) for row in cluster.cluster.logs[COPY].rows if row]


@pytest.mark.parametrize("configured", [None, *CONVERTERS])
@pytest.mark.parametrize(("first", "second"), [*permutations(CONVERTERS, 2)])
def test_a_converter_that_was_changed_alters_nothing(
    first: str, second: str, configured: str | None
) -> None:
    """A JSON file does not show whether its strings are texts or JSON; the object says it."""
    again = Restoring()
    stored = [rows(0, TEXTS[first]), rows(3, TEXTS[second])]
    for cut, name in zip(stored, (first, second), strict=True):
        again.backup.put("orders", 0, cut, views=json_of(name))
    reading = ReadOptions()
    if configured is not None:
        name, properties = CONVERTERS[configured]
        given = {View.KEY: properties, View.VALUE: properties}
        reading = ReadOptions(OPTIONS, name, name, given, frozenset(given))

    texts = TEXTS if configured else TEXTS | {"envelopes": TEXTS["json"]}
    wanted = [
        (TEXTS[name] % at, texts[name] % at)
        for start, name in ((0, first), (3, second))
        for at in range(start, start + 3)
    ]
    assert wanted == restored(again, reading)
    assert 0 == Verified(again.backup, deep=True, reading=reading).exit_code


def test_a_converter_that_is_asked_for_converts() -> None:
    """An option, or a source connector's file, says what the records are to be."""
    again = Restoring()
    again.backup.put("orders", 0, rows(0, TEXTS["json"]), views=json_of("json"))

    reading = ReadOptions(OPTIONS, "string", "string")
    assert [(b"v%d" % at, b"v%d" % at) for at in range(3)] == restored(again, reading)
    assert not [
        code
        for code, _ in again.plan(value_converter="string").topics[0].warnings
        if code == "own_converter"
    ]


def test_an_option_of_the_converter_of_a_sinks_file_asks_for_it(tmp_path: Path) -> None:
    """What is given beside the file is no leaving of the sink's."""
    (file := tmp_path / "sink.properties").write_text("value.converter=json\n")
    again = Restoring(files=[file], properties={"value.converter.schemas.enable": "true"})
    again.backup.put("orders", 0, rows(0, TEXTS["json"]), views=json_of("json")[1:])

    found = restored(again, wiring.reading(again.settings()))
    assert [(None, TEXTS["envelopes"] % at) for at in range(3)] == found


@pytest.mark.parametrize("configured", [None, ";", "\r\n"])
@pytest.mark.parametrize(("first", "second"), [*permutations((None, ";", "\r\n", "  ", "§"), 2)])
def test_a_separator_that_was_changed_damages_nothing(
    first: str | None, second: str | None, configured: str | None
) -> None:
    """Each file of raw values is split at the separator that it was written with."""
    again = Restoring()
    for start, separator in ((0, first), (3, second)):
        again.backup.put("orders", 0, rows(start, b"v%d"), views=separated(separator))
    reading = ReadOptions(separated(configured)[0].options)

    assert [(None, b"v%d" % at) for at in range(6)] == restored(again, reading)
    assert 0 == Verified(again.backup, deep=True, reading=reading).exit_code


@pytest.mark.parametrize("configured", [None, 1, 2])
def test_an_option_that_a_format_keeps_may_be_changed(configured: int | None) -> None:
    """What decides what a plugin's file means is stored with it."""
    again = Restoring()
    for start, width in ((0, 2), (3, 4)):
        again.backup.put("orders", 0, rows(start, b"v%%0%dd" % (width - 1)), views=of_width(width))
    given = {} if configured is None else {WIDTH: configured}
    reading = ReadOptions(FormatOptions(given))

    values = [b"v0", b"v1", b"v2", b"v003", b"v004", b"v005"]
    assert [(None, value) for value in values] == restored(again, reading)
    assert 0 == Verified(again.backup, deep=True, reading=reading).exit_code
    assert () == again.plan().topics[0].refusals


def test_a_standby_reads_each_object_as_it_was_written(standby: Standby, tmp_path: Path) -> None:
    """The converter is changed while a restore follows, whose own configuration stays."""
    standby.name("orders")
    (file := tmp_path / "sink.properties").write_text("value.converter=string\n")

    def sink(start: int, name: str) -> None:
        cut, views = rows(start, TEXTS[name]), json_of(name)[1:]
        keys = standby.backup.put("orders", 0, cut, views=views)
        standby.enter("orders", 0, keys, Span(start, start + 3))

    sink(0, "string")

    def happens(look: int) -> bool:
        if look == 1:
            sink(3, "json")
        return look < 3

    standby.follow(happens, files=[file])

    assert [b'"v%d"' % at for at in range(6)] == standby.target.values("copy_of_orders")


def test_values_are_compared_with_full_records_as_they_were_written() -> None:
    """Full records beside texts in JSON files hold the same records."""
    again = Restoring()
    for views in (json_of("string")[1:], RECORD):
        again.backup.put("orders", 0, rows(0, TEXTS["string"]), views=views)

    assert [(value, value) for value in rows(0, TEXTS["string"])["value"].to_pylist()] == restored(
        again, ReadOptions()
    )
    assert 0 == Verified(again.backup, deep=True).exit_code


@pytest.mark.parametrize(
    ("views", "sinks", "name"),
    [
        (json_of("string")[1:], "value.converter=json", "value.converter"),
        (
            JSON,
            "value.converter=json\nvalue.converter.schemas.enable=true",
            "value.converter.schemas.enable",
        ),
        (separated(None), "format.bytearray.separator=;", SEPARATOR),
        (separated(None), "format.bytearray.separator=\\n", None),
        (separated(";"), "format.bytearray.separator=|", SEPARATOR),
        (separated(";"), "", None),
        (of_width(4), "fixed.width=2", WIDTH),
        (of_width(4), "fixed.width=4", None),
        (of_width(4), "", None),
        (json_of("string")[1:], "value.converter=string", None),
        (JSON, "", None),
    ],
)
def test_a_plan_warns_of_what_was_written_otherwise(
    views: tuple[ViewSpec, ...], sinks: str, name: str | None, tmp_path: Path
) -> None:
    """Whose sink has another converter or separator now learns that it is not taken."""
    (file := tmp_path / "sink.properties").write_text(sinks)
    again = Restoring(files=[file])
    (key,) = again.backup.put("orders", 0, rows(0, b'"v%d"'), views=views)

    warnings = again.plan().topics[0].warnings
    (*texts,) = [text for code, text in warnings if code == "own_converter"]

    told = f"orders: {key} was written with another {name} than is configured; "
    assert ([] if name is None else [told + "such objects are read as they were written"]) == texts


@pytest.mark.parametrize("separator", [None, "\n", " ", "  ", "§", '"', "\\u0020"])
def test_metadata_says_it_in_ascii_without_a_space(separator: str | None) -> None:
    """A signed request has no room for two spaces, nor for other alphabets."""
    (spec,) = separated(separator)

    metadata = written_metadata(spec.written_with)

    assert all(text.isascii() and " " not in text for text in metadata.values())
    assert {SEPARATOR: separator or "\n", "converter": "bytes"} == written_of(metadata)


@pytest.mark.parametrize("width", [4, Decimal(4), (4, 2), PurePath("widths")])
def test_an_option_of_any_type_is_compared_as_it_is_stored(width: Any) -> None:
    """A plugin's option may be a path or a number of another kind, which JSON has as text."""
    (spec,) = of_width(width)

    assert spec.written_with == written_of(written_metadata(spec.written_with))


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "1", '{"converter":5}', "[" * 5000, r'{"format.bytearray.separator":"\ud800"}'],
)
def test_metadata_that_is_not_sound_says_nothing(text: str) -> None:
    """What another tool may have put there is left alone."""
    assert {} == written_of({"written-with": text})


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("schemas.enable", "perhaps"),
        ("schemas.enable", []),
        ("schemas.enable", None),
        ("schemas.enable", 5),
        (SEPARATOR, ""),
    ],
)
def test_metadata_that_nobody_can_have_written_is_damage_of_its_object(
    option: str, value: object
) -> None:
    """It is not what was configured: somebody has altered it."""
    again = Restoring()
    views = separated(";") if option == SEPARATOR else json_of("json")[1:]
    (key,) = again.backup.put("orders", 0, rows(0, TEXTS["json"]), views=views)
    written = {"converter": views[0].converter, option: value}
    head = again.backup.store.head(key)
    assert head is not None
    facts = {**head.metadata, **written_metadata(written)}
    again.backup.replace(key, again.backup.body(key), facts)
    reading = ReadOptions(OPTIONS, "json", "json", {}, frozenset({View.KEY, View.VALUE}))

    with pytest.raises(CorruptObjectError, match="it says that it was written with") as refused:
        restored(again, reading)

    assert refused.value.place["key"] == key
    assert 7 == Verified(again.backup, deep=True, reading=reading).exit_code


@pytest.mark.parametrize("sinks", ["", "value.converter=json"])
def test_a_converter_that_is_not_installed_is_named_with_the_object(
    sinks: str, tmp_path: Path
) -> None:
    """It is of a plugin; another converter may be asked for."""
    (file := tmp_path / "sink.properties").write_text(sinks)
    again = Restoring(files=[file])
    (key,) = again.backup.put("orders", 0, rows(0, b"v%d"), views=json_of("string")[1:])
    again.backup.replace(key, again.backup.body(key), written_metadata({"converter": "netstring"}))

    with pytest.raises(ConfigurationError, match="no converter named 'netstring'") as refused:
        restored(again, wiring.reading(again.settings()))

    assert refused.value.what.startswith(f"{key}: ")
    asked = ReadOptions(value_converter="string")
    assert [(None, b"v%d" % at) for at in range(3)] == restored(Restoring(again.backup), asked)


def test_full_records_say_nothing_and_registry_converters_their_name() -> None:
    """Full records are as they were in Kafka; a registry's converter goes by the registry."""
    registering = ViewSpec(View.VALUE, "avro", OPTIONS, "avro")

    assert ({}, {"converter": "avro"}) == (RECORD[0].written_with, registering.written_with)


@pytest.mark.parametrize("text", [b'{"n":%d}', b"%d", b'"v%d"', b"v%d"])
def test_objects_of_a_connector_are_compared_with_those_that_say_more(text: bytes) -> None:
    """Files of JSON hold the same text in the same way, whoever has stored it as a string."""
    again = Restoring()
    cuts = rows(0, text), rows(3, text)
    keys = again.backup.put("orders", 0, *cuts, views=json_of("string")[1:])
    again.backup.replace(keys[0], again.backup.body(keys[0]), {})

    found = restored(again, ReadOptions(value_converter="string"))
    assert [(None, text % at) for at in range(6)] == found


def test_a_plan_warns_of_objects_that_only_a_registry_could_give_back(tmp_path: Path) -> None:
    """A restore does not ask for the registry that the sink's file has lost."""
    (file := tmp_path / "sink.properties").write_text("value.converter=json\n")
    again = Restoring(files=[file])
    registered = ViewSpec(View.VALUE, "avro", OPTIONS, "avro").written_with
    typed = (ViewSpec(View.VALUE, "avro", OPTIONS, "string"),)
    (key,) = again.backup.put("orders", 0, rows(0, b'"v%d"'), views=typed)
    again.backup.replace(key, again.backup.body(key), written_metadata(registered))

    (text,) = [text for code, text in again.plan().topics[0].warnings if code == "own_converter"]

    assert text.endswith("avro needs a registry, so json reads such objects")


@pytest.mark.parametrize("written", ['{"converter":"nope"}', '{"converter":"json","a":[]}'])
def test_full_records_are_read_whatever_converter_they_name(again: Restoring, written: str) -> None:
    """They hold bytes, which no converter made, so nobody asks for one."""
    (key,) = again.backup.put("orders", 0, range(3))
    head = again.backup.store.head(key)
    assert head is not None
    again.backup.replace(key, again.backup.body(key), {**head.metadata, "written-with": written})

    again.restore()

    assert values(range(3)) == again.cluster.values(COPY.topic)
