"""The connectors' behaviour, replayed: every case of ``connect_cases.yaml``.

A case that kbackup answers otherwise on purpose, or not yet, is expected to fail for a reason
that `DIFFERENT` gives; it fails here once it no longer differs.
"""

import json
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import case_files
import pyarrow as pa
import pytest
from connect_flow import Outcome, Player, schema_of, settings
from record_samples import batch_of

from tests.conformance.product import (
    Compatibility,
    Layout,
    ObjectKey,
    Schedule,
    TopicPartition,
    View,
    extractors,
    fields,
    joda,
    joins,
    loading,
    needs_version,
    partitioners,
)

FILE: Final = "connect_cases"
SCHEMAS: Final = case_files.document(FILE).get("schemas", {})
KINDS: Final = frozenset(
    {"sink", "partition", "timestamp_string", "schedule", "config", "filename",
     "schema_compat", "s3_protocol", "content"}
)  # fmt: skip
"""Kinds that have a runner, here or in the reason for having none."""

UPLOADS: Final = "uploads are another protocol, which tests/fault shows: put once, then compare"
TAGS: Final = "tags are set when an object is stored, which tests/contract shows, not by the flow"
MODE_TYPO: Final = "a misspelt schema.compatibility is refused, not taken for NONE"
BUG: Final = "a defect of the connectors that is not copied"


def different(case: dict[str, Any]) -> str | None:
    """Return why a case of kind ``sink`` is answered otherwise, None where it is not."""
    if "faults" in case and case["faults"][0]["op"] == "PutObjectTagging":
        return TAGS
    if "expect_tags" in case:
        return TAGS
    if "preexisting" in case or "faults" in case:
        return UPLOADS
    return {
        "derived-lowercase-compat-is-none": MODE_TYPO,
        "derived-null-schema-dlq-regresses-offset": BUG,
    }.get(case["id"])


def sink_cases() -> list[Any]:
    """Return the cases of kind ``sink``, those that differ marked."""
    found = []
    for param in case_files.cases(FILE, "sink"):
        (case,) = param.values
        why = different(case)
        marks = () if why is None else (pytest.mark.xfail(reason=why),)
        found.append(pytest.param(case, id=param.id, marks=marks))
    return found


def test_every_case_has_a_runner() -> None:
    """Every case has a runner; a case of an unknown kind fails."""
    assert {case["kind"] for case in case_files.document(FILE).get("cases", [])} <= KINDS


def expand(offsets: Any) -> Any:
    """Return the offsets of an object, ``0..9999`` written out."""
    if isinstance(offsets, str) and ".." in offsets:
        first, _, last = offsets.partition("..")
        return list(range(int(first), int(last) + 1))
    return offsets


@pytest.mark.parametrize("case", sink_cases())
def test_files_are_the_connectors(case: dict[str, Any], tmp_path: Path) -> None:
    """The same records, in the same order at the same times, make the same files and commits."""
    chosen = settings(case, tmp_path)
    topic = case.get("topic", "test-topic")
    outcomes = {
        partition: Player(case, SCHEMAS, chosen, TopicPartition(topic, partition)).play()
        for partition in case.get("assignment", [12])
    }
    before = -1
    for number, step in enumerate(case["steps"]):
        if "expect_objects" in step:
            expected = {key: expand(each) for key, each in step["expect_objects"].items()}
            assert expected == stored(outcomes, number)
        if "expect_uncommitted" in step:
            assert step["expect_uncommitted"] == waiting(case, outcomes, number)
        if "precommit" in step:
            assert step["precommit"] == committed(outcomes, before, number)
            before = number
        if "expect_reported" in step:
            bad = sorted(each["offset"] for each in step["expect_reported"])
            assert bad == reported(outcomes, number)
        assert "expect_tags" not in case
        assert "expect_rewind" not in step
        assert ("raises" in step) == any(at.raised == number for at in outcomes.values())


def stored(outcomes: dict[int, Outcome], until: int) -> dict[str, list[int]]:
    """Return the objects there are after a step."""
    return {
        key: offsets
        for outcome in outcomes.values()
        for at, key, offsets in outcome.objects
        if at <= until
    }


def waiting(case: dict[str, Any], outcomes: dict[int, Outcome], until: int) -> list[int]:
    """Return the offsets that are in no object after a step, and were not left out."""
    held = {offset for offsets in stored(outcomes, until).values() for offset in offsets}
    given = [
        row["offset"]
        for step in case["steps"][:until]
        for row in case_files.generated(step.get("put") or [])
    ]
    return sorted(set(given) - held - {*reported(outcomes, until)})


def reported(outcomes: dict[int, Outcome], until: int) -> list[int]:
    """Return the offsets of the records that were left out up to a step."""
    return sorted(
        offset for outcome in outcomes.values() for at, offset in outcome.reported if at <= until
    )


def committed(outcomes: dict[int, Outcome], after: int, until: int) -> dict[int, int]:
    """Return what was committed between two steps."""
    return {
        partition: offset
        for partition, outcome in outcomes.items()
        for at, offset in outcome.committed
        if after < at <= until
    }


TYPES: Final = {
    "boolean": pa.bool_(), "int8": pa.int8(), "int16": pa.int16(), "int32": pa.int32(),
    "int64": pa.int64(), "float32": pa.float32(), "float64": pa.float64(), "string": pa.string(),
    "Timestamp": pa.timestamp("ms"),
}  # fmt: skip


def arrow(text: str) -> pa.DataType:
    """Return the type of ``struct{a:int32,b:array<string>?}`` and its like."""
    text = text.removesuffix("?")
    if text.startswith("struct{"):
        fields_, depth, start = [], 0, 7
        for at, letter in enumerate(text):
            depth += letter in "{<"
            if depth == 1 and letter in ",}":
                name, _, kind = text[start:at].partition(":")
                fields_.append((name, arrow(kind)))
                start = at + 1
            depth -= letter in "}>"
        return pa.struct(fields_)
    if text.startswith("array<"):
        return pa.list_(arrow(text[6:-1]))
    if text.startswith("map<"):
        key, _, kind = text[4:-1].partition(",")
        return pa.map_(arrow(key), arrow(kind))
    return TYPES[text]


@pytest.mark.parametrize("case", case_files.cases(FILE, "partition"))
def test_directories_are_the_connectors(case: dict[str, Any]) -> None:
    """The same record goes to the same directory; what the connectors cannot place has none."""
    given, record, expected = case["config"], case["record"], case["expect"]
    batch = batch_of([{"timestamp": -1 if record.get("ts", 0) is None else record.get("ts", 0)}])
    if "value_schema" in record:
        kind = arrow(record["value_schema"])
        value = record["value"]
        if pa.types.is_map(kind):
            value = [*value.items()]
        batch = batch.append_column(fields.DECODED, pa.array([value], kind))
    extractor = extractors.by_name(
        {"Record": "record", "RecordField": "field"}.get(
            given.get("timestamp.extractor", ""), "wallclock"
        ),
        given,
    )
    times = extractor.extract(batch, 0)
    if isinstance(expected, dict) and "timestamp_ms" in expected:
        assert [expected["timestamp_ms"]] == times.to_pylist()
        return
    name = {"TimeBased": "time"}.get(given["partitioner.class"], given["partitioner.class"].lower())
    partitioner = partitioners.by_name(name, given)
    where = TopicPartition("t", record.get("partition", 0))

    found = partitioner.encode(where, batch.append_column("time", times))

    wanted = None if isinstance(expected, dict) else expected
    assert [wanted] == found.cast(pa.string()).to_pylist()


@pytest.mark.parametrize("case", case_files.cases(FILE, "timestamp_string"))
def test_texts_are_the_connectors_times(case: dict[str, Any]) -> None:
    """Text is parsed to the same moment as by a connector whose JVM runs in that zone."""
    found = joda.parse_iso(str(case["input"]), joda.zone_by_id(case["jvm_zone"]))

    assert case["expect"].get("timestamp_ms") == found


@pytest.mark.parametrize("case", case_files.cases(FILE, "schedule"))
def test_scheduled_cuts_are_the_connectors(case: dict[str, Any]) -> None:
    """A scheduled file ends at the same clock boundary as the connectors' file."""
    now, expected = (
        int(datetime.fromisoformat(case[name]).timestamp() * 1000) for name in ("now", "expect")
    )

    assert expected == Schedule(case["interval_ms"], case["timezone"]).next(now)


@pytest.mark.parametrize("case", case_files.cases(FILE, "filename"))
def test_views_are_named_as_the_connectors_name_them(case: dict[str, Any]) -> None:
    """A view's suffix comes before the extension."""
    view = {"value": View.VALUE, "keys": View.KEY, "headers": View.HEADERS}[case["view"]]
    extension = case["extension"]
    for given, expected in case["table"].items():
        if given.endswith(extension) and given != extension:
            stem = expected.removesuffix(f"{view}{extension}")
            assert given.removesuffix(extension) == stem
    key = Layout().key(ObjectKey("t", 0, 0, "partition=0", extension, view))
    assert f"t+0+0000000000{view}{extension}" == key.rpartition("/")[2]
    assert view is Layout().parse(key).view


FLIP: Final = "a value without a schema goes into another file: no error, no record lost"


@pytest.mark.parametrize("case", case_files.cases(FILE, "schema_compat"))
@pytest.mark.parametrize("mode", list(Compatibility))
def test_schemas_share_a_file_as_for_the_connectors(
    case: dict[str, Any], mode: Compatibility
) -> None:
    """In each compatibility mode a record joins the open file, closes it, or is refused."""
    if mode not in case["expect"]:
        pytest.skip("the case says nothing of this mode")
    expected = case["expect"][mode]
    file, record = (
        None
        if found is None
        else schema_of(SCHEMAS.get(found, found) if isinstance(found, str) else found)
        for found in (case["file_schema"], case["record_schema"])
    )
    if expected.startswith("SchemaProjectorException: Switch"):
        pytest.xfail(FLIP)

    columns = [None if found is None else found.of_column() for found in (file, record)]
    if expected.startswith("SchemaProjectorException"):
        assert any(needs_version(mode, found) for found in columns)
        return
    is_joined = joins(mode, *columns)
    assert ("rotate" == expected) == (not is_joined)
    if is_joined and columns[0] != columns[1] and file is not None and record is not None:
        values = pa.nulls(3, record.arrow())
        assert file.arrow() == fields.projected(values, record, file).type


CLASSES: Final = {
    "format.class": {
        name: f"io.confluent.connect.s3.format.{name}.{kind}Format"
        for name, kind in (
            ("avro", "Avro"), ("json", "Json"), ("bytes", "ByteArray"), ("parquet", "Parquet"),
        )
    },
    "partitioner.class": {
        name: f"io.confluent.connect.storage.partitioner.{name}Partitioner"
        for name in ("Default", "Field", "TimeBased", "Hourly", "Daily")
    },
}  # fmt: skip
CONVERTERS: Final = {
    "json": ("org.apache.kafka.connect.json.JsonConverter", "false"),
    "bytes": ("org.apache.kafka.connect.converters.ByteArrayConverter", None),
}
CONDITIONS: Final = "an object is put only where there is none, or where its facts are the same"
NO_CODEC: Final = "pyarrow has no LZO"
NO_EFFECT: Final = "it has no effect here, so its value is not read"
NO_SCHEME: Final = "a URL without a scheme is refused, not completed"


def config_difference(case: dict[str, Any]) -> str | None:
    """Return why a configuration is judged otherwise, None where it is not."""
    expected = case["expect"]
    if isinstance(expected, dict) and "conditional_writes_effective" in expected:
        return CONDITIONS
    return {
        "config-parquet-lzo": NO_CODEC,
        "config-digest-random": NO_EFFECT,
        "config-storeurl-minio.local": NO_SCHEME,
    }.get(case["id"])


def config_cases() -> list[Any]:
    """Return the cases of kind ``config``, those that differ marked."""
    found = []
    for param in case_files.cases(FILE, "config"):
        (case,) = param.values
        why = config_difference(case)
        marks = () if why is None else (pytest.mark.xfail(reason=why),)
        found.append(pytest.param(case, id=param.id, marks=marks))
    return found


def configuration(case: dict[str, Any]) -> dict[str, str]:
    """Return a connector's whole file with the properties of a case in it."""
    given: dict[str, str] = case["config"]
    converter, schemas = CONVERTERS.get(given.get("format.class", "json"), CONVERTERS["json"])
    whole = {
        "name": "s3", "connector.class": "io.confluent.connect.s3.S3SinkConnector",
        "topics": "t", "s3.bucket.name": "b", "flush.size": "3", "format.class": "json",
        "value.converter": converter,
    }  # fmt: skip
    if schemas is not None:
        whole["value.converter.schemas.enable"] = schemas
    if given.get("partitioner.class") == "TimeBased":
        whole |= {
            "partition.duration.ms": "3600000", "path.format": "YYYY", "locale": "en",
            "timezone": "UTC", "timestamp.extractor": "Record",
        }  # fmt: skip
    elif "rotate.schedule.interval.ms" in given:
        whole["timezone"] = "UTC"
    whole |= given
    return {name: CLASSES.get(name, {}).get(text, text) for name, text in whole.items()}


@pytest.mark.parametrize("case", config_cases())
def test_configurations_are_judged_as_the_connectors_do(
    case: dict[str, Any], tmp_path: Path
) -> None:
    """What the connectors refuse is refused by the property's name, and what they accept is not."""
    path = tmp_path / "connector.json"
    path.write_text(json.dumps(configuration(case)))
    expected = case["expect"]
    wrong = {doubt.name for doubt in loading.check([path], {}).issues if doubt.level == "error"}
    mine = wrong & set(case["config"])

    if expected == "valid" or "codec" in expected:
        assert not mine
    elif "conditional_writes_effective" in expected:
        pytest.fail(CONDITIONS)
    elif "invalid_on" in expected:
        assert wrong & set(expected["invalid_on"])
    elif "endpoint" in expected and not expected["endpoint"].startswith("broken"):
        assert not mine
    else:
        assert mine


ELSEWHERE: Final = {
    "s3_protocol": "an object is put in one call of boto3's; tests/fault fails each request of it",
    "content": "contents are compared with objects of the real connector, byte for byte",
}


@pytest.mark.parametrize("kind", sorted(ELSEWHERE))
def test_what_is_shown_elsewhere_is_counted(kind: str) -> None:
    """A case that is not replayed here is listed with the test that covers it."""
    count = len(case_files.cases(FILE, kind))

    if count:
        pytest.xfail(f"{count} cases of kind {kind}: {ELSEWHERE[kind]}")
