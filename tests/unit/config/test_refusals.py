"""What is refused by name."""

import pytest

from kbackup.config import loading
from kbackup.config.foreign_names import REFUSALS, refusals_of
from tests.support.configurations import JSON, SINK, Write

_HEADERS = "org.apache.kafka.connect."
VALUES = {
    "file.discovery.starting.timestamp": ("0", "1700000000000"),
    "value.schema": ("", "{}"),
    "csv.rfc.4180.parser.enabled": ("true", "false"),
    "csv.keep.carriage.return": ("false", "true"),
    "filename.regex": (r"(.+)\+(\d+)\+.+$", ".*"),
    "format.json.schema.enable": ("false", "true"),
    "kafka.api.key": ("", "x"),
    "kafka.api.secret": ("", "x"),
    "header.converter": (
        f"{_HEADERS}storage.StringConverter",
        f"{_HEADERS}converters.ByteArrayConverter",
    ),
    "modulo.shuffle": ("false", "true"),
}
"""A harmless value of a property, and one that is refused."""
_ON = ("support.optional.for.proto2", "flatten.singleton.unions")
"""Options of converters that are true if they are not set."""


def values(name: str) -> tuple[str, str]:
    """Return a harmless value of a property, and one that is refused."""
    if name.startswith("s3."):  # of S3 alone
        return "", "x"
    if ".converter." not in name:
        return VALUES[name]
    if name.endswith("executors"):
        return "", "true"
    return ("true", "false") if name.endswith(_ON) else ("false", "true")


@pytest.mark.parametrize("name", [refusal.name for refusal in REFUSALS])
def test_a_value_that_changes_something_is_refused_and_a_default_is_not(name: str) -> None:
    """What this version cannot do is not done halfway; a file may spell out a default."""
    harmless, refused = values(name)

    (row,) = refusals_of(name)

    assert (False, True) == (row.applies(harmless), row.applies(refused))
    assert row.why
    assert row.do


OF_CONFLUENT = "io.confluent.connect."
AVRO = SINK.replace(
    "org.apache.kafka.connect.json.JsonConverter", f"{OF_CONFLUENT}avro.AvroConverter"
)
PROTOBUF = AVRO.replace("avro.AvroConverter", "protobuf.ProtobufConverter")


HEADERS_IN_BASE64 = f"header.converter={_HEADERS}converters.ByteArrayConverter"
HEADERS_PARSED = f"header.converter={_HEADERS}storage.SimpleHeaderConverter"
HEADERS_AS_TEXT = f"header.converter={_HEADERS}storage.StringConverter"
KEPT, NOT_KEPT = "store.kafka.headers=true", "store.kafka.headers=false"


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        pytest.param(PROTOBUF, "flatten.unions=true", True, id="of this converter"),
        pytest.param(AVRO, "flatten.unions=true", False, id="of another converter"),
        pytest.param(SINK, "generalized.sum.type.support=true", False, id="of no registry"),
        pytest.param(AVRO, "generalized.sum.type.support=true", True, id="of three"),
        pytest.param(AVRO, "generalized.sum.type.support=false", False, id="the default"),
        pytest.param(AVRO, "use.latest.version=true", False, id="of a restore"),
        pytest.param(SINK, "replace.null.with.default=false", False, id="supported"),
        pytest.param(SINK + KEPT, HEADERS_IN_BASE64, True, id="headers in base64"),
        pytest.param(SINK + NOT_KEPT, HEADERS_IN_BASE64, False, id="headers not stored"),
        pytest.param(SINK + KEPT, HEADERS_PARSED, True, id="headers parsed"),
        pytest.param(SINK + NOT_KEPT, HEADERS_PARSED, False, id="headers parsed, not stored"),
        pytest.param(SINK + KEPT, HEADERS_AS_TEXT, False, id="headers as they are"),
    ],
)
def test_an_option_of_a_converter_is_refused_where_it_would_change_a_file(
    write: Write, text: str, line: str, expected: bool
) -> None:
    """A connector's file never runs with other contents than the connector would write."""
    name = line.partition("=")[0]
    if name != "header.converter":
        name = f"value.converter.{name}"
    more = "value.converter.schema.registry.url=http://registry:8081"
    given = write(f"{text}\n{more}\nheaders.format.class={JSON}\n{name}={line.partition('=')[2]}\n")
    issues = {issue.name for issue in loading.check([given], {}).issues if issue.level == "error"}

    assert expected == (name in issues)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param("partitioner.class=Modulo", True, id="chosen"),
        pytest.param("partitioner.class=by-value", False, id="another is chosen"),
        pytest.param("", False, id="the default is another"),
    ],
)
def test_a_plugin_from_elsewhere_refuses_what_it_does_not_support(
    write: Write, line: str, expected: bool
) -> None:
    """Any plugin may declare a property unsupported: it is refused in the plugin's own words."""
    given = write(f"{SINK}{line}\nmodulo.shuffle=true\n")
    (issue,) = (
        issue for issue in loading.check([given], {}).issues if "modulo.shuffle" in issue.name
    )

    assert expected == (issue.level == "error")
    assert expected == (issue.why == "directories follow from offsets alone")
