"""Text to values."""

from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from kbackup.config import parsing

CHOICE = Annotated[Literal["fail", "ignore"], *parsing.Word]
EXACT = Annotated[Literal["none", "gzip"], *parsing.ExactWord]


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        pytest.param(parsing.Text, " a b ", "a b", id="text is trimmed"),
        pytest.param(parsing.OptionalText, "  ", None, id="blank is not given"),
        pytest.param(parsing.Untrimmed, " \t", " \t", id="untrimmed"),
        pytest.param(CHOICE, " IGNORE", "ignore", id="any case"),
        pytest.param(EXACT, " gzip", "gzip", id="exact case"),
        pytest.param(parsing.Boolean, "True", True, id="boolean in any case"),
        pytest.param(parsing.Boolean, False, False, id="boolean as it is"),
        pytest.param(parsing.Switch, "1", True, id="switch"),
        pytest.param(parsing.Switch, "", False, id="empty switch"),
        pytest.param(parsing.Integer, " +3 ", 3, id="integer"),
        pytest.param(parsing.Integer, "-1", -1, id="negative"),
        pytest.param(parsing.OptionalInteger, "", None, id="no integer"),
        pytest.param(parsing.Duration, "10s", 10.0, id="seconds"),
        pytest.param(parsing.Duration, "500ms", 0.5, id="milliseconds"),
        pytest.param(parsing.Duration, "1.5 h", 5400.0, id="hours"),
        pytest.param(parsing.Duration, "7", 7.0, id="no unit"),
        pytest.param(parsing.Topics, "a, b,,", ("a", "b"), id="list"),
        pytest.param(parsing.Topics, ("a,b", "c"), ("a", "b", "c"), id="repeated option"),
        pytest.param(parsing.Topics, "", (), id="empty list"),
        pytest.param(parsing.Pairs, "a=1,b=2,3,c=", {"a": "1", "b": "2,3", "c": ""}, id="pairs"),
        pytest.param(parsing.Pairs, ("a=1", "b=x=y"), {"a": "1", "b": "x=y"}, id="repeated"),
        pytest.param(parsing.Partitions, "5,0-2, 1", (0, 1, 2, 5), id="partitions"),
        pytest.param(parsing.Partitions, "", None, id="no partitions"),
        pytest.param(parsing.StoreUrl, "http://h:9000/", "http://h:9000", id="slash at the end"),
        pytest.param(parsing.StoreUrl, "file:///a/b", "file:///a/b", id="folder"),
        pytest.param(parsing.StoreUrl, "", None, id="no URL"),
        pytest.param(parsing.Servers, " a:1, b ", "a:1, b", id="servers, one at Kafka's port"),
        pytest.param(parsing.Servers, "SASL_SSL://a.b:9", "SASL_SSL://a.b:9", id="protocol"),
        pytest.param(parsing.Servers, "[::1]:9,fe80::1", "[::1]:9,fe80::1", id="version 6"),
        pytest.param(parsing.Servers, "[fe80::1%eth0]:9", "[fe80::1%eth0]:9", id="interface"),
        pytest.param(parsing.Servers, " ", None, id="no servers"),
        pytest.param(parsing.ConsumerGroup, "g" * 32767, "g" * 32767, id="longest group"),
        pytest.param(parsing.JavaPattern, "prod\\..*+", "prod\\..*+", id="Java's possessive"),
    ],
)
def test_text_becomes_a_value(kind: Any, value: object, expected: object) -> None:
    """
    What is typed means what an operator would expect of it.
    """
    assert expected == TypeAdapter(kind).validate_python(value)


@pytest.mark.parametrize(
    ("kind", "value", "says"),
    [
        pytest.param(CHOICE, "skip", "'fail' or 'ignore'", id="no such word"),
        pytest.param(EXACT, "GZIP", "'none' or 'gzip'", id="the connector wants small letters"),
        pytest.param(parsing.Boolean, "yes", "true or false", id="yes is no boolean"),
        pytest.param(parsing.Switch, "maybe", "true or false", id="no switch"),
        pytest.param(parsing.Integer, "1.0", "whole number", id="fraction"),
        pytest.param(parsing.Integer, "1_000", "whole number", id="underscore"),
        pytest.param(parsing.Integer, "9" * 5000, "whole number", id="thousands of digits"),
        pytest.param(parsing.Integer, "", "whole number", id="empty"),
        pytest.param(parsing.Duration, "-1s", "duration", id="negative duration"),
        pytest.param(parsing.Duration, "soon", "duration", id="no duration"),
        pytest.param(parsing.Topics, "a b", "legal topic name", id="blank in a topic"),
        pytest.param(parsing.Topics, "..", "legal topic name", id="dots"),
        pytest.param(parsing.Pairs, "a", "NAME=VALUE", id="no pair"),
        pytest.param(parsing.Partitions, "3-1", "0,3-5", id="backwards"),
        pytest.param(parsing.Partitions, "-1", "0,3-5", id="negative partition"),
        pytest.param(parsing.Partitions, "0-2147483647", "at most", id="all there could be"),
        pytest.param(parsing.Partitions, "9999999999", "0,3-5", id="past Kafka's"),
        pytest.param(parsing.StoreUrl, "minio.local", "scheme", id="no scheme"),
        pytest.param(parsing.StoreUrl, "127.0.0.1:9000", "scheme", id="host and port"),
        pytest.param(parsing.StoreUrl, "s3://b", "http://", id="another scheme"),
        pytest.param(parsing.StoreUrl, "file://a", "full path", id="relative folder"),
        pytest.param(parsing.StoreUrl, "file:///", "full path", id="the root"),
        pytest.param(parsing.StoreUrl, "http://a:b@h", "credentials", id="credentials"),
        pytest.param(parsing.StoreUrl, "http://h:port", "[Pp]ort", id="no port"),
        pytest.param(parsing.StoreUrl, "http://", "host", id="no host"),
        pytest.param(parsing.StoreUrl, "http://[::1", "IPv6", id="half an address"),
        pytest.param(parsing.Servers, "a b:9092", "HOST:PORT", id="blank in a host"),
        pytest.param(parsing.Servers, "a:9092:1x", "HOST:PORT", id="two ports"),
        pytest.param(parsing.Servers, "a:99999", "HOST:PORT", id="no such port"),
        pytest.param(parsing.Servers, ",,", "HOST:PORT", id="commas alone"),
        pytest.param(parsing.Servers, "a:", "HOST:PORT", id="empty port"),
        pytest.param(parsing.Servers, "http://a/b", "HOST:PORT", id="a web page"),
        pytest.param(parsing.ConsumerGroup, "é" * 16384, "32767 bytes", id="a group too long"),
        pytest.param(parsing.JavaPattern, "(", "regular expression", id="no pattern"),
        pytest.param(parsing.Directory, "a/../b", "expected a plain folder", id="up"),
        pytest.param(parsing.Directory, "a//b", "expected a plain folder", id="no segment"),
        pytest.param(parsing.Directory, "d" * 513, "expected at most 512 bytes", id="long"),
    ],
)
def test_what_cannot_be_read_says_what_was_expected(kind: Any, value: object, says: str) -> None:
    """
    An error about a value says what was expected.
    """
    with pytest.raises(ValidationError, match=says):
        TypeAdapter(kind).validate_python(value)


@given(st.sets(st.integers(0, 5000), min_size=1))
@settings(deadline=None)
def test_partitions_are_those_named(partitions: set[int]) -> None:
    """
    A list of partitions is a sorted set, however it is written.
    """
    text = ",".join(map(str, partitions))

    assert tuple(sorted(partitions)) == TypeAdapter(parsing.Partitions).validate_python(text)
