"""Layout, format, converter, partitioner, extractor and rotation."""

import pytest

from kbackup import plugins
from kbackup.config import loading
from kbackup.errors import ConfigurationError
from kbackup.formats.byte_array import separator
from kbackup.runs import wiring
from tests.support.configurations import JSON, SINK, WHOLE, Write, errors, load

BYTES = "io.confluent.connect.s3.format.bytearray.ByteArrayFormat"
DAILY = "partitioner.class=io.confluent.connect.storage.partitioner.DailyPartitioner\n"
ZONE = "timezone=UTC\nlocale=en\n"
TIMED = DAILY.replace("Daily", "TimeBased") + ZONE
COPIES = "errors.deadletterqueue.topic.replication.factor"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        pytest.param(
            "value.converter=com.amazonaws.services.schemaregistry.kafkaconnect.AWSKafkaAvroConverter",
            "value.converter",
            id="no such converter",
        ),
        pytest.param("json.decimal.format=TEXT", "json.decimal.format", id="no such decimals"),
        pytest.param(
            "value.converter=org.apache.kafka.connect.converters.ByteArrayConverter",
            "value.converter",
            id="bytes in JSON",
        ),
        pytest.param(
            "store.kafka.keys=true\nkey.converter=json",
            "key.converter",
            id="keys in Avro by default, without a schema",
        ),
        pytest.param(
            f"store.kafka.headers=true\nheaders.format.class={BYTES}",
            "headers.format.class",
            id="headers in bytes",
        ),
        pytest.param(
            f"store.kafka.keys=true\nkeys.format.class={JSON}\n"
            "key.converter=org.apache.kafka.connect.storage.StringConverter\n"
            "key.converter.converter.encoding=latin1",
            "key.converter.converter.encoding",
            id="text in another encoding",
        ),
        pytest.param(
            "transforms=a\ntransforms.a.type=x.InsertField$Value",
            "transforms.a.type",
            id="transform",
        ),
        pytest.param(
            "errors.tolerance=all\nerrors.deadletterqueue.topic.name=orders",
            "errors.deadletterqueue.topic.name",
            id="dead letters that feed themselves",
        ),
        pytest.param(
            "errors.tolerance=all\nerrors.deadletterqueue.topic.name=a b",
            "errors.deadletterqueue.topic.name",
            id="dead letters in a topic that cannot be",
        ),
        pytest.param("s3.proxy.url=ftp://p", "s3.proxy.url", id="proxy"),
        pytest.param(
            "s3.credentials.provider.class=AwsAssumeRoleCredentialsProvider",
            "s3.credentials.provider.sts.role.arn",
            id="a role without its name",
        ),
        pytest.param(
            f"format.class={BYTES}\nvalue.converter=bytes\nformat.bytearray.extension=bin",
            "format.bytearray.extension",
            id="a name that ends in digits and letters",
        ),
        pytest.param(
            "s3.wan.mode=true\ns3.path.style.access.enabled=true", "s3.wan.mode", id="accelerate"
        ),
        pytest.param(
            "s3.credentials.provider.class=com.acme.Vault",
            "s3.credentials.provider.class",
            id="credentials of a third party",
        ),
        pytest.param("behavior.on.null.values=write", "behavior.on.null.values", id="tombstones"),
        pytest.param(DAILY + "locale=en", "timezone", id="no zone"),
        pytest.param(DAILY + "timezone=UTC", "locale", id="no language"),
        pytest.param(DAILY + "locale=en\ntimezone=PST", "timezone", id="no such zone"),
        pytest.param("timezone=utc", "timezone", id="a zone by another case"),
        pytest.param(TIMED + "partition.duration.ms=60000", "path.format", id="no pattern"),
        pytest.param(TIMED + "path.format=YYYY", "partition.duration.ms", id="no span"),
        pytest.param(
            TIMED + "path.format=YYYY\npartition.duration.ms=0",
            "partition.duration.ms",
            id="a span of nothing",
        ),
        pytest.param(
            TIMED + "partition.duration.ms=60000\npath.format=YYYY-b",
            "path.format",
            id="a letter that means nothing",
        ),
        pytest.param(
            TIMED + "partition.duration.ms=60000\npath.format=YYYY/../MM",
            "path.format",
            id="a folder above",
        ),
        pytest.param(
            TIMED + "partition.duration.ms=60000\npath.format=YYYY/'..'",
            "path.format",
            id="a folder above, in quotes",
        ),
        pytest.param(DAILY.replace("Daily", "Field"), "partition.field.name", id="no field"),
        pytest.param("format.class=x.Y", "format.class", id="no such format"),
        pytest.param("format.class=", "format.class", id="no format"),
        pytest.param("flush.size=", "flush.size", id="no number"),
        pytest.param("store.url=minio:9000", "store.url", id="no scheme"),
        pytest.param("store.url=ftp://minio", "store.url", id="no such store"),
        pytest.param(
            "timestamp.extractor=RecordField\ntimestamp.field=a..b",
            "timestamp.field",
            id="an empty name of a field",
        ),
        pytest.param(f"{COPIES}=0", COPIES, id="no copy"),
        pytest.param(
            "partitioner.max.open.files=0", "partitioner.max.open.files", id="no open file"
        ),
        pytest.param(
            f"format.class={BYTES}\nvalue.converter=bytes\nformat.bytearray.separator=",
            "format.bytearray.separator",
            id="no separator",
        ),
        pytest.param("partition.field.name=a..b", "partition.field.name", id="an empty name"),
        pytest.param("rotate.schedule.interval.ms=60000", "timezone", id="a schedule of no zone"),
        pytest.param("schema.compatibility=Full", "schema.compatibility", id="a misspelt mode"),
        pytest.param(
            "schema.compatibility=FULL_TRANSITIVE", "schema.compatibility", id="transitive"
        ),
        pytest.param(
            "s3.schema.partition.affix.type=Prefix", "s3.schema.partition.affix.type", id="affix"
        ),
        pytest.param("timestamp.extractor=record-time", "timestamp.extractor", id="no extractor"),
    ],
)
def test_what_cannot_be_done_or_used_is_one_error_by_its_name(
    write: Write, text: str, name: str
) -> None:
    """What a connector could and we cannot, what is missing, what is wrong: each once, no other."""
    base = SINK if "value.converter" not in text else SINK.partition("value.converter")[0]

    found = errors("sink", write(base + text), bootstrap_servers="h:1")

    assert [name] == list(found)


_NUMBERS = {"boolean", "double", "float", "integer", "long", "short"}
_REGISTERED = {"avro", "json_schema", "protobuf"}
_ALL = {"bytes", "string", "json"} | _NUMBERS | _REGISTERED


@pytest.mark.parametrize(
    ("form", "accepted"),
    [
        ("json", _ALL - {"bytes"}),
        ("bytes", {"bytes"}),
        ("block_gzip", {"bytes", "string"}),
        ("csv", {"json"}),
        ("avro", _ALL),
        ("parquet", _ALL),
    ],
)
def test_each_format_takes_the_converters_that_give_what_it_holds(
    form: str, accepted: set[str]
) -> None:
    """What both declare decides which built-in converter goes with which built-in format."""
    takes = plugins.load("formats", form).traits.takes

    assert accepted == {
        name for name in _ALL if not takes.isdisjoint(plugins.load("converters", name).traits.gives)
    }


def test_a_wrong_pair_names_the_converters_that_would_do(write: Write) -> None:
    """The usual converter comes first, and is the one to set."""
    base = SINK.partition("value.converter")[0]
    issues = loading.check([write(f"{base}value.converter=bytes\n")], {}).issues

    (issue,) = (issue for issue in issues if issue.level == "error")
    assert ("combination", "set value.converter=json") == (issue.code, issue.do)
    named = set(issue.why.removeprefix("this version writes json files of: ").split(", "))
    assert (_ALL - {"bytes"}, False) == (named & _ALL, "bytes" in named)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "key.converter=io.confluent.connect.avro.AvroConverter", None, id="keys are not stored"
        ),
        pytest.param(
            f"store.kafka.keys=true\nkeys.format.class={JSON}", ("string", {}), id="assumed"
        ),
        pytest.param("store.kafka.keys=true\nkeys.format.class=bytes", ("bytes", {}), id="bytes"),
    ],
)
def test_the_keys_converter_counts_where_keys_are_stored(
    write: Write, text: str, expected: tuple[str, dict[str, str]] | None
) -> None:
    """A key converter that cannot be used stops a run only if keys are stored."""
    settings = load("sink", write(SINK + text), bootstrap_servers="h:1").settings

    found = settings.key_converter, settings.key_converter_properties
    assert (expected or (None, {})) == found


@pytest.mark.parametrize(
    "converter",
    [
        pytest.param("io.confluent.connect.avro.AvroConverter", id="of a registry not named"),
        pytest.param("com.example.OwnConverter", id="of a third party"),
    ],
)
def test_an_unusable_key_converter_does_not_stop_a_restore(write: Write, converter: str) -> None:
    """The file of a sink that ran can be restored from."""
    text = f"{SINK}key.converter={converter}"

    settings = load("restore", write(text), bootstrap_servers="h:1").settings

    assert (None, {}) == (settings.key_converter, settings.key_converter_properties)


def test_what_is_assumed_for_a_worker_is_named(write: Write) -> None:
    """If a file relied on its worker's converter, a warning names the one that is assumed."""
    path = write(SINK.partition("value.converter")[0])

    found = [issue for issue in loading.check([path], {}).issues if issue.code == "assumed"]

    assert ["value.converter"] == [issue.name for issue in found]
    assert "schemas.enable=false" in found[0].why


@pytest.mark.parametrize(
    "name",
    [
        "partitioner.class", "timestamp.extractor", "keys.format.class", "key.converter",
        "value.converter",
    ],
)  # fmt: skip
def test_an_empty_name_of_a_plugin_stands_for_the_default(write: Write, name: str) -> None:
    """A configuration with an empty name is the one without it."""
    lines = SINK.strip().splitlines()
    rest = "\n".join([line for line in lines if not line.startswith(name + "=")])
    text = f"{rest}\nstore.kafka.keys=true\n"

    found = [
        load("sink", write(text + more), bootstrap_servers="h:1").settings
        for more in ("", f"{name}=\n")
    ]

    assert found[0] == found[1]


def test_the_separator_is_taken_as_it_is(write: Write) -> None:
    """A separator is taken as it is written, even if it consists of blanks."""
    text = SINK.replace(JSON, BYTES).partition("value.converter")[0]

    settings = load(
        "sink", write(text + "format.bytearray.separator=\\u0020\\n"), bootstrap_servers="h:1"
    ).settings

    assert b" \n" == separator(wiring.format_options(settings))


def test_a_connectors_partitioner_goes_by_its_clock(write: Write) -> None:
    """The connector's defaults apply where its file is silent, and a surprising one is reported."""
    loaded = load(
        "sink", write(SINK + DAILY + ZONE + "rotate.interval.ms=60000"), bootstrap_servers="h:1"
    )
    rule = wiring.rule(loaded.settings)

    assert ("daily", "wallclock") == (
        loaded.settings.partitioner_class,
        loaded.settings.timestamp_extractor,
    )
    assert (True, 60_000) == (rule.on_directory_change, rule.span_ms)
    assert "timestamp.extractor" in {
        issue.name for issue in loaded.warnings if issue.code == "assumed"
    }


def test_full_records_go_by_their_own_time() -> None:
    """Directories by time say when a record was made, and late ones close no files."""
    options = WHOLE | {"partitioner_class": "daily", "timezone": "UTC", "locale": "en"}
    settings = load("sink", **options).settings

    assert "record" == settings.timestamp_extractor
    assert not wiring.rule(settings).on_directory_change


def test_a_zone_that_there_is_not_is_one_error(write: Write) -> None:
    """A value that a partitioner refuses too is reported once, with where it was given."""
    path = write(SINK + DAILY + "locale=en\ntimezone=PST")

    with pytest.raises(ConfigurationError) as caught:
        load("sink", path, bootstrap_servers="h:1")

    [found] = caught.value.place["errors"]
    assert ("timezone", f"file {path}") == (found["name"], found["origin"].rpartition(":")[0])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param("rotate.schedule.interval.ms=60000\ntimezone=+02:00", "schedule", id="clock"),
        pytest.param("partitioner.max.open.files=5", "open_files", id="open files"),
        pytest.param("schema.compatibility=BACKWARD", "compatibility", id="schemas"),
    ],
)
def test_a_property_of_rotation_is_part_of_the_rule(write: Write, text: str, found: str) -> None:
    """Each property of rotation in a file reaches the rule by which files are cut."""
    rules = [
        wiring.rule(load("sink", write(SINK + more), bootstrap_servers="h:1").settings)
        for more in ("", text)
    ]
    usual, given = (getattr(rule, found) for rule in rules)

    assert usual != given
