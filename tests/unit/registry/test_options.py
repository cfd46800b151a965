from pathlib import Path
from typing import Any

import pytest

from kbackup.config import loading
from kbackup.connect.registry import settings_of, subject
from kbackup.errors import ConfigurationError

URL = "schema.registry.url"
SIDES = ("key", "value")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({}, "", id="none"),
        pytest.param({"basic.auth.user.info": "a:b"}, "a:b", id="without a source"),
        pytest.param(
            {"basic.auth.credentials.source": "USER_INFO", "basic.auth.user.info": "a:b:c"},
            "a:b:c",
            id="a password with a colon",
        ),
        pytest.param(
            {URL: "http://x:y@h", "basic.auth.user.info": "a:b"}, "", id="the URL's go first"
        ),
    ],
)
def test_where_credentials_come_from(given: dict[str, Any], expected: str) -> None:
    """User and password are those of the source that the configuration names."""
    assert expected == settings_of({URL: "http://h", **given}).user


@pytest.mark.parametrize(
    ("given", "named"),
    [
        pytest.param({URL: "registry:8081"}, URL, id="no scheme"),
        pytest.param({URL: "mock://x"}, URL, id="a registry of tests"),
        pytest.param({"basic.auth.user.info": "ann"}, "basic.auth.user.info", id="no password"),
        pytest.param(
            {
                URL: "http://a:b@h",
                "basic.auth.user.info": "a:b",
                "basic.auth.credentials.source": "USER_INFO",
            },
            URL,
            id="twice",
        ),
        pytest.param(
            {"schema.registry.ssl.truststore.type": "JKS"},
            "schema.registry.ssl.truststore.type",
            id="a trust store of Java's",
        ),
        pytest.param(
            {"basic.auth.credentials.source": "USER_INFO"},
            "basic.auth.credentials.source",
            id="no user",
        ),
        pytest.param(
            {"basic.auth.credentials.source": "SASL_INHERIT"},
            "basic.auth.credentials.source",
            id="credentials of another client",
        ),
    ],
)
def test_what_cannot_be_used_is_named(given: dict[str, Any], named: str) -> None:
    """Unusable settings are refused before a run, with the property and what to do."""
    with pytest.raises(ConfigurationError) as caught:
        settings_of({URL: "http://h", **given})

    assert named == caught.value.place["property"]
    assert caught.value.do
    assert "a:b" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    ["", "h:8081", "ftp://h", "http://", "http://[", "https://[x]@h", "http://h:x", "a,http://["],
)
def test_what_is_no_url_is_refused(url: str) -> None:
    """A registry URL that is none is refused by the property's name, without a traceback."""
    with pytest.raises(ConfigurationError, match=r"schema\.registry\.url"):
        settings_of({URL: url})


def test_times_are_in_seconds() -> None:
    """Times are given in milliseconds, as to the connectors, and used in seconds."""
    found = settings_of({URL: "http://a,http://b", "http.read.timeout.ms": "1500"})

    assert (("http://a", "http://b"), 1.5, 60.0, 1.0, 3) == (
        found.urls,
        found.read_s,
        found.connect_s,
        found.wait_s,
        found.retries,
    )


@pytest.mark.parametrize("part", SIDES)
@pytest.mark.parametrize(
    ("name", "attribute"),
    [
        ("ssl.ca.location", "ca"),
        ("ssl.truststore.location", "ca"),
        ("ssl.certificate.location", "certificate"),
        ("ssl.keystore.location", "certificate"),
    ],
)
def test_a_file_is_given_by_either_name(
    tmp_path: Path, part: str, name: str, attribute: str
) -> None:
    """The connectors' name and the plain one stand for the same file."""
    file = tmp_path / "c.properties"
    both = "".join(f"{each}.converter=avro\n{each}.converter.{URL}=https://h\n" for each in SIDES)
    file.write_text(
        f"{part}.converter.schema.registry.{name}=/file.pem\n{both}format.class=avro\n"
        "s3.bucket.name=lake\nbootstrap.servers=b:1\ntopics=orders\nflush.size=1\n"
        "store.kafka.keys=true\nkeys.format.class=avro\n"
    )

    loaded = loading.load("sink", files=(file,), options={}, environ={})

    properties = getattr(loaded.settings, f"{part}_converter_properties")
    assert "/file.pem" == getattr(settings_of(properties), attribute)


@pytest.mark.parametrize(
    ("strategy", "record", "expected"),
    [
        ("TopicNameStrategy", "x.Order", "orders-value"),
        ("io.confluent.kafka.serializers.subject.RecordNameStrategy", "x.Order", "x.Order"),
        ("TopicRecordNameStrategy", "x.Order", "orders-x.Order"),
        pytest.param("RecordNameStrategy", None, "orders-value", id="no record"),
    ],
)
def test_subjects_are_called_as_the_serializers_call_them(
    strategy: str, record: str | None, expected: str
) -> None:
    """A version is asked for under the subject that the producer registered its schema under."""
    assert expected == subject(strategy, "orders", "value", record)
