"""A whole configuration, for each command."""

import json
import pickle
import subprocess
import sys
import tempfile
from importlib.metadata import entry_points
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbackup import config, plugins
from kbackup.config import loading
from kbackup.config.foreign_names import NO_EFFECT, REFUSALS
from kbackup.config.loading import Command
from kbackup.config.property import KAFKA
from kbackup.errors import ConfigurationError
from kbackup.formats.parquet import CODEC
from kbackup.naming.renaming import Rename
from kbackup.runs import wiring
from tests.support.configurations import JSON, SINK, WHOLE, Write, errors, load


def test_full_records_need_no_setting() -> None:
    """Brokers, topics and a bucket are all that a backup of full records needs."""
    settings = load("sink", **WHOLE).settings

    assert ("record", "parquet", "zstd") == (
        settings.view,
        settings.format_class,
        CODEC.of(settings.plugin_options),
    )
    assert (1_000_000, 134_217_728, 86_400_000) == (
        settings.flush_size,
        settings.rotate_bytes,
        settings.rotate_interval_ms,
    )
    assert ("s3://b", None, "kbackup-b-topics") == (
        settings.url,
        settings.endpoint_url,
        settings.group,
    )


def test_a_connectors_file_is_a_configuration(write: Write) -> None:
    """A connector's file selects the connectors' layout, its cuts and its offsets."""
    settings = load("sink", write(SINK), bootstrap_servers="h:1").settings

    assert ("value", "json", "connect-s3-sink") == (
        settings.view,
        settings.format_class,
        settings.group,
    )
    assert (3, -1, -1) == (
        settings.flush_size,
        settings.rotate_bytes,
        settings.rotate_interval_ms,
    )
    assert ("json", {"schemas.enable": False}) == (
        settings.value_converter,
        settings.value_converter_properties,
    )


def test_a_sinks_file_restores_as_it_is(write: Write) -> None:
    """A restore ignores what only a sink needs, and says so in one line."""
    text = (
        SINK + "transforms=a\ntransforms.a.type=x.InsertField$Value\nrotate.schedule.interval.ms=1"
    )

    loaded = load("restore", write(text), bootstrap_servers="h:1")

    [said] = [issue for issue in loaded.warnings if issue.code == "no_effect"]
    assert {"flush.size", "tasks.max", "transforms", "rotate.schedule.interval.ms"} <= set(
        said.name.split(", ")
    )
    assert () == loaded.settings.renames
    assert None is loaded.settings.group


def test_a_source_connectors_file_renames(write: Write) -> None:
    """RegexRouter in a source connector's file renames topics as the connector does."""
    text = """
        connector.class=io.confluent.connect.s3.source.S3SourceConnector
        format.class=json
        s3.bucket.name=b
        s3.path.style.access=false
        transforms=AddPrefix
        transforms.AddPrefix.type=org.apache.kafka.connect.transforms.RegexRouter
        transforms.AddPrefix.regex=.*
        transforms.AddPrefix.replacement=copy_of_$0
    """

    settings = load("restore", write(text), bootstrap_servers="h:1").settings

    assert (Rename(regex=".*", replacement="copy_of_$0"),) == settings.renames
    assert {"s3.bucket.name": "b", "s3.path.style.access.enabled": False} == settings.options_of(
        "stores"
    )


@pytest.mark.parametrize(
    ("command", "missing"),
    [
        pytest.param("sink", {"bootstrap.servers", "topics", "s3.bucket.name"}, id="sink"),
        pytest.param("restore", {"bootstrap.servers", "s3.bucket.name"}, id="restore"),
        pytest.param("list", {"s3.bucket.name"}, id="list"),
        pytest.param("verify", {"s3.bucket.name"}, id="verify"),
        pytest.param("cat", {"s3.bucket.name"}, id="cat"),
    ],
)
def test_what_a_command_needs_is_asked_for_at_once(
    command: loading.Command, missing: set[str]
) -> None:
    """All missing settings are reported at once."""
    assert missing == set(errors(command))


@pytest.mark.parametrize("command", ["config", "doctor"])
def test_looking_at_a_configuration_needs_none(command: loading.Command) -> None:
    """Commands that show the configuration do not require a complete one."""
    found = load(command)

    assert None is found.settings.store_url
    assert () == found.warnings or command == "config"


@pytest.mark.parametrize(
    ("options", "name"),
    [
        pytest.param({"topics_regex": "o.*"}, "topics.regex", id="topics twice"),
        pytest.param({"format_class": "json"}, "flush.size", id="no flush.size"),
        pytest.param({"view": "value"}, "flush.size", id="values without flush.size"),
        pytest.param({"format_class": "xml", "flush_size": "1"}, "format.class", id="no format"),
        pytest.param(
            {"format_class": "parquet", "flush_size": "1"},
            "value.converter.schema.registry.url",
            id="values in Parquet",
        ),
        pytest.param(
            {"format_class": "bytes", "view": "record"}, "format.class", id="full records in bytes"
        ),
        pytest.param({"view": "rows"}, "view", id="no view"),
        pytest.param({"s3_part_retries": "0"}, "s3.part.retries", id="no attempt at all"),
        pytest.param({"s3_part_size": "5"}, "s3.part.size", id="below S3's least part"),
        pytest.param({"s3_compression_type": "gzip"}, "s3.compression.type", id="gzip of Parquet"),
        pytest.param(
            {"partitioner_class": "x.WeeklyPartitioner"}, "partitioner.class", id="no partitioner"
        ),
        pytest.param({"store_url": "minio:9000"}, "store.url", id="no scheme"),
        pytest.param({"flush_size": "1e3"}, "flush.size", id="no number"),
    ],
)
def test_a_wrong_setting_is_named(options: dict[str, object], name: str) -> None:
    """Each error names its property, and nothing else is blamed for it."""
    assert [name] == list(errors("sink", **WHOLE | options))


@pytest.mark.parametrize(
    ("given", "url", "endpoint", "place"),
    [
        pytest.param({"s3_bucket_name": "b"}, "s3://b", None, "s3://b/topics", id="AWS"),
        pytest.param(
            {"s3_bucket_name": "b", "store_url": "http://h:1/"},
            "s3://b",
            "http://h:1",
            "s3://b/topics at http://h:1",
            id="another server",
        ),
        pytest.param({"store_url": "file:///x"}, "file:///x", None, "file:///x/topics", id="file"),
    ],
)
def test_the_store_is_a_bucket_or_a_folder(
    given: dict[str, object], url: str, endpoint: str | None, place: str
) -> None:
    """A URL selects a folder in place of a bucket, or another server, which messages name."""
    settings = load("list", **given).settings

    assert (url, endpoint, place) == (settings.url, settings.endpoint_url, settings.place)
    assert place == wiring.layout(settings).place


def test_settings_are_frozen_and_cross_a_process() -> None:
    """A task in another process gets exactly what was checked."""
    settings = load("restore", **WHOLE, rename="copy_of_$0", spark_conf=("a=b",)).settings

    assert settings == pickle.loads(pickle.dumps(settings))
    with pytest.raises(AttributeError, match="frozen"):
        settings.flush_size = 1


def test_kafka_gets_what_is_meant_for_it(write: Write) -> None:
    """Client properties reach the clients under librdkafka's names."""
    text = """
        security.protocol=SASL_SSL
        sasl.mechanism=PLAIN
        sasl.username=u
        sasl.password=p
        consumer.override.fetch.max.wait.ms=5
        consumer.override.auto.offset.reset=latest
        kafka.timeout=3s
    """

    settings = load("sink", write(text), **WHOLE).settings

    login = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": "u",
        "sasl.password": "p",
    }
    assert login | {"fetch.wait.max.ms": "5"} == settings.kafka_consumer
    assert login == settings.kafka_producer == settings.kafka_admin
    assert ("latest", 3.0) == (settings.auto_offset_reset, settings.kafka_timeout)


def test_what_only_connect_takes_for_granted_is_said(write: Write) -> None:
    """There the worker signs its other clients in, and each connector has a name."""
    text = """
        connector.class=io.confluent.connect.s3.S3SinkConnector
        format.class=io.confluent.connect.s3.format.json.JsonFormat
        flush.size=3
        consumer.override.security.protocol=SASL_SSL
    """

    found = load("sink", write(text), **WHOLE).warnings

    said = {issue.name: issue.why for issue in found}
    assert "the consumer alone" in said["consumer.override.security.protocol"]
    assert "so the group is kbackup-" in said["name"]


@pytest.mark.parametrize("command", sorted(KAFKA))
def test_each_command_that_talks_to_kafka_signs_in(write: Write, command: Command) -> None:
    """A file that serves a sink serves what follows a restore, too."""
    text = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nssl.ca.location=/ca\n"

    settings = load(command, write(text), **WHOLE).settings

    assert "SASL_PLAINTEXT" == settings.kafka_admin["security.protocol"]
    assert "/ca" == settings.kafka_admin["ssl.ca.location"]


def test_errors_are_named_together_with_their_origins(write: Write) -> None:
    """All errors are reported together, each with its source."""
    path = write("flush.size=x\ntopics=<T>\nview=value\nformat.class=xml")

    with pytest.raises(ConfigurationError) as caught:
        load("sink", path, bootstrap_servers="h:1", s3_bucket_name="b")

    for line, name in enumerate(("flush.size", "topics"), 1):
        assert f"{name}=" in caught.value.why
        assert f"{path}:{line}" in caught.value.why
    assert {"flush.size", "topics", "format.class"} == {
        found["name"] for found in caught.value.place["errors"]
    }


def test_a_missing_file_is_the_only_error(tmp_path: Path) -> None:
    """If a file cannot be read, nothing else is reported as missing."""
    with pytest.raises(ConfigurationError, match=r"gone\.json") as caught:
        load("sink", tmp_path / "gone.json")

    assert 1 == len(caught.value.place["errors"])


@pytest.mark.parametrize(
    ("text", "errors"),
    [
        pytest.param(SINK, [], id="a connector's file lacks only its worker's brokers"),
        pytest.param("flush.size=3", [], id="part of a configuration"),
        pytest.param(
            "connector.class=x.S3SinkConnector",
            ["format.class", "topics", "s3.bucket.name", "flush.size"],
            id="incomplete sink",
        ),
        pytest.param(
            "connector.class=x.source.S3SourceConnector\nmode=GENERIC",
            ["format.class", "s3.bucket.name", "topic.regex.list"],
            id="incomplete source",
        ),
    ],
)
def test_a_file_is_checked_by_its_connector(write: Write, text: str, errors: list[str]) -> None:
    """``config check`` tells a sink's file from a source's, and what options may still provide."""
    found = loading.check([write(text)], {}).issues

    assert errors == [issue.name for issue in found if issue.level == "error"]


@pytest.mark.parametrize(
    ("options", "name"),
    [
        pytest.param({"csv_separator_char": 10}, "csv.separator.char", id="a line feed"),
        pytest.param({"csv_quote_char": 13}, "csv.quote.char", id="a carriage return"),
        pytest.param({"csv_quote_char": 44}, "csv.quote.char", id="separator and quote are one"),
        pytest.param({"csv_file_charset": "hex"}, "csv.file.charset", id="bytes, and no text"),
        pytest.param({"from_time": "2026-01-01"}, "from.time", id="times of values"),
        pytest.param({"from_offset": 3}, "from.offset", id="offsets"),
    ],
)
def test_what_objects_of_any_name_cannot_be_read_with_is_found_at_the_start(
    options: dict[str, object], name: str
) -> None:
    """Not with the first object."""
    given = WHOLE | {"mode": "GENERIC", "topic_regex_list": "t:.*"} | options

    assert [name] == list(errors("restore", **given))


OURS = {found.name for found in config.PROPERTIES}
NAMES = sorted(OURS | NO_EFFECT | {row.name for row in REFUSALS})
TEXTS = st.one_of(
    st.text(),
    st.sampled_from(
        [
            "",
            "0",
            "-1",
            "true",
            "json",
            "parquet",
            "value",
            JSON,
            "a,b",
            "file:///x",
            "http://[",
            "[",
            "${file:\0:k}",
        ]
    ),
)


@given(st.dictionaries(st.one_of(st.sampled_from(NAMES), st.text()), TEXTS, max_size=8))
@settings(deadline=None, max_examples=300)
def test_no_configuration_ends_in_a_traceback(properties: dict[str, str]) -> None:
    """Any file yields settings, or errors that say why not."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "f.json")
        path.write_text(json.dumps(properties))
        issues = loading.check([path], {}).issues
        errors = [issue.name for issue in issues if issue.level == "error"]
        for command in ("sink", "restore", "cat", "config"):
            try:
                loading.load(command, options={}, files=[path], environ={})
            except ConfigurationError as error:
                errors += [found["name"] for found in error.place["errors"]]

    assert all(isinstance(name, str) for name in errors)


def test_loading_is_light() -> None:
    """Configuration imports no client and no Spark, and ``kbackup --help`` not even that."""
    heavy = ("boto3", "confluent_kafka", "pyspark", "yaml", "click", "rich")

    def imported(module: str, *names: str) -> str:
        code = f"import sys, {module}; print([m for m in {names!r} if m in sys.modules])"
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    assert "[]" == imported("kbackup.config", *heavy)
    assert "[]" == imported("kbackup.cli", "kbackup.config", "pyarrow")


def test_no_plugin_imports_the_configuration_that_imports_it() -> None:
    """A plugin whose module is half imported when its options are asked for would have none."""
    points = {
        point.module
        for extension_point in plugins.EXTENSION_POINTS
        for point in entry_points(group=f"kbackup.{extension_point}")
        if point.module.startswith("kbackup.")
    }
    code = f"import sys, {', '.join(sorted(points))}; print('kbackup.config' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "False" == done.stdout.strip()


def test_a_restore_follows_only_where_its_own_command_line_says_so(tmp_path: Path) -> None:
    """A restore accepts a sink's file and does not follow because the file does."""
    path = tmp_path / "orders.properties"
    path.write_text("follow=true\ntopics=orders\ns3.bucket.name=b\nbootstrap.servers=k:9092\n")

    def follows(command: loading.Command, **options: object) -> bool:
        return loading.load(command, options=options, files=[path], environ={}).settings.follow

    assert [True, False, True] == [
        follows("sink"),
        follows("restore"),
        follows("restore", follow=True),
    ]


@pytest.mark.parametrize(
    ("command", "given", "expected"),
    [
        pytest.param("sink", {}, ((), ".*"), id="a sink takes all others"),
        pytest.param("sink", {"topics": "a,b.test"}, (("a",), None), id="of those that are named"),
        pytest.param("sink", {"topics_regex": "a.*"}, ((), "a.*"), id="of those that match"),
        pytest.param("restore", {}, ((), None), id="a restore takes all others anyway"),
    ],
)
def test_topics_can_be_left_out(
    command: loading.Command, given: dict[str, str], expected: tuple[object, object]
) -> None:
    """topics.exclude is enough to say which topics, and leaves out of those that are named."""
    options = {name: text for name, text in WHOLE.items() if name != "topics"} | given

    settings = load(command, **options, topics_exclude=".*[.]test").settings

    assert expected == (settings.topics, settings.topics_regex)
    assert ".*[.]test" == settings.asked.excluded


def test_topics_that_are_all_left_out_are_refused() -> None:
    """Nothing left of what was named must not mean everything."""
    assert {"topics.exclude"} == {*errors("sink", **WHOLE | {"topics": "a"}, topics_exclude="a|b")}


@pytest.mark.parametrize(("pattern", "expected"), [("b", ["topics.exclude"]), ("a", [])])
def test_a_pattern_that_leaves_out_none_of_the_names_is_said(
    pattern: str, expected: list[str]
) -> None:
    """It may be misspelt."""
    loaded = load("sink", **WHOLE | {"topics": "a,c"}, topics_exclude=pattern)

    assert expected == [issue.name for issue in loaded.warnings if issue.code == "no_effect"]


@pytest.mark.parametrize("command", [*get_args(Command)])
def test_a_connectors_file_serves_every_command(command: Command, write: Write) -> None:
    """What a command does not need of it, it does not miss either."""
    options = {} if command in ("config", "doctor") else {"bootstrap_servers": "h:1"}

    assert "s3-sink" == load(command, write(SINK), **options).settings.name


def test_a_connectors_file_without_a_format_is_refused_by_who_writes(write: Write) -> None:
    """Full records are not what a connector would have written."""
    without = "\n".join(line for line in SINK.splitlines() if "format.class" not in line)

    assert "format.class" in errors("sink", write(without), bootstrap_servers="h:1")
    assert load("status", write(without)).settings
