"""Text to values."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbackup.config.property import moment
from kbackup.config.settings import BY_NAME

FOLDER = "tombstone.encoded.partition"


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        pytest.param("topics.dir", " a b ", "a b", id="text is trimmed"),
        pytest.param("format.class", "  ", None, id="blank is not given"),
        pytest.param("rename", " \t", " \t", id="untrimmed"),
        pytest.param("behavior.on.error", " IGNORE", "ignore", id="any case"),
        pytest.param("schema.compatibility", " FULL", "FULL", id="exact case"),
        pytest.param("store.kafka.keys", "True", True, id="boolean in any case"),
        pytest.param("store.kafka.keys", False, False, id="boolean as it is"),
        pytest.param("follow", "1", True, id="switch"),
        pytest.param("follow", "", False, id="empty switch"),
        pytest.param("flush.size", " +3 ", 3, id="integer"),
        pytest.param("rotate.interval.ms", "10m", 600_000, id="a span with its unit"),
        pytest.param("rotate.interval.ms", " 0.5s ", 500, id="a part of a unit"),
        pytest.param("rotate.interval.ms", "-1", -1, id="its own unit"),
        pytest.param("errors.retry.timeout", "500ms", 500, id="named without its unit"),
        pytest.param("progress.seconds", "2m", 120.0, id="seconds"),
        pytest.param("flush.size", "-1", -1, id="negative"),
        pytest.param("from.offset", "", None, id="no integer"),
        pytest.param("stop.timeout", "10s", 10.0, id="seconds"),
        pytest.param("stop.timeout", "500ms", 0.5, id="milliseconds"),
        pytest.param("stop.timeout", "1.5 h", 5400.0, id="hours"),
        pytest.param("lock.timeout", "0.5s", 0.5, id="a part of a second"),
        pytest.param("lock.timeout", "0.5", 0.5, id="a part of a second without its unit"),
        pytest.param("rotate.idle.ms", "1.5m", 90_000, id="a part of a minute"),
        pytest.param("s3.object.lock.days", "30", 30, id="days"),
        pytest.param("s3.object.lock.days", "48h", 2, id="days in hours"),
        pytest.param("stop.timeout", "7", 7.0, id="no unit"),
        pytest.param("topics", "a, b,,", ("a", "b"), id="list"),
        pytest.param("topics", ("a,b", "c"), ("a", "b", "c"), id="repeated option"),
        pytest.param("topics", "", (), id="empty list"),
        pytest.param("topic.config", "a=1,b=2,3,c=", {"a": "1", "b": "2,3", "c": ""}, id="pairs"),
        pytest.param("topic.config", ("a=1", "b=x=y"), {"a": "1", "b": "x=y"}, id="repeated"),
        pytest.param("partitions", "5,0-2, 1", (0, 1, 2, 5), id="partitions"),
        pytest.param("partitions", "", None, id="no partitions"),
        pytest.param("store.url", "http://h:9000/", "http://h:9000", id="slash at the end"),
        pytest.param("store.url", "file:///a/b", "file:///a/b", id="folder"),
        pytest.param("store.url", "", None, id="no URL"),
        pytest.param("bootstrap.servers", " a:1, b ", "a:1, b", id="servers, one at Kafka's port"),
        pytest.param("bootstrap.servers", "SASL_SSL://a.b:9", "SASL_SSL://a.b:9", id="protocol"),
        pytest.param("bootstrap.servers", "[::1]:9,fe80::1", "[::1]:9,fe80::1", id="version 6"),
        pytest.param("bootstrap.servers", "[fe80::1%eth0]:9", "[fe80::1%eth0]:9", id="interface"),
        pytest.param("bootstrap.servers", " ", None, id="no servers"),
        pytest.param("metrics.listen", " 9464 ", "127.0.0.1:9464", id="port"),
        pytest.param("metrics.listen", "0.0.0.0:1", "0.0.0.0:1", id="host and port"),
        pytest.param("metrics.listen", "[::]:65535", "[::]:65535", id="host of version 6"),
        pytest.param("group", "g" * 32767, "g" * 32767, id="longest group"),
        pytest.param("topics.regex", "prod\\..*+", "prod\\..*+", id="Java's possessive"),
    ],
)
def test_text_becomes_a_value(name: str, value: object, expected: object) -> None:
    """What is typed means what an operator would expect of it."""
    assert expected == BY_NAME[name].read(value)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        pytest.param("behavior.on.error", "skip", "'ignore' or 'log'", id="no such word"),
        pytest.param("schema.compatibility", "full", "or 'FULL'", id="capitals are wanted"),
        pytest.param("store.kafka.keys", "yes", "true or false", id="yes is no boolean"),
        pytest.param("follow", "maybe", "true or false", id="no switch"),
        pytest.param("flush.size", "1.0", "whole number", id="fraction"),
        pytest.param("flush.size", "1_000", "whole number", id="underscore"),
        pytest.param("flush.size", "9" * 5000, "whole number", id="thousands of digits"),
        pytest.param("flush.size", "", "whole number", id="empty"),
        pytest.param("stop.timeout", "-1s", "duration", id="negative duration"),
        pytest.param("stop.timeout", "soon", "duration", id="no duration"),
        pytest.param("rotate.interval.ms", "soon", "milliseconds", id="no milliseconds"),
        pytest.param("rotate.interval.ms", "1.5ms", "whole", id="a part of a millisecond"),
        pytest.param("lock.timeout", "1.0001s", "whole", id="another part of a millisecond"),
        pytest.param("lock.timeout", "true", "1.5m", id="no number"),
        pytest.param("lock.timeout", f"{10**400}d", "at most 36500d", id="more than a float holds"),
        pytest.param("rotate.interval.ms", "-1s", "milliseconds", id="a negative span"),
        pytest.param("rotate.idle.ms", "0s", "at least 1", id="no time at all"),
        pytest.param("progress.seconds", "0", "at least 1s$", id="too short"),
        pytest.param("kafka.timeout", "2h", "at most 3600s", id="too long"),
        pytest.param("s3.object.lock.days", "36h", "whole days", id="a part of a day"),
        pytest.param("topics", "a b", "legal topic name", id="blank in a topic"),
        pytest.param("topics", "..", "legal topic name", id="dots"),
        pytest.param("topic.config", "a", "NAME=VALUE", id="no pair"),
        pytest.param("partitions", "3-1", "0,3-5", id="backwards"),
        pytest.param("partitions", "-1", "0,3-5", id="negative partition"),
        pytest.param("partitions", "0-2147483647", "at most", id="all there could be"),
        pytest.param("partitions", "9999999999", "0,3-5", id="past Kafka's"),
        pytest.param("store.url", "minio.local", "scheme", id="no scheme"),
        pytest.param("store.url", "127.0.0.1:9000", "scheme", id="host and port"),
        pytest.param("store.url", "s3://b", "http://", id="another scheme"),
        pytest.param("store.url", "file://a", "full path", id="relative folder"),
        pytest.param("store.url", "file:///", "full path", id="the root"),
        pytest.param("store.url", "http://a:b@h", "credentials", id="credentials"),
        pytest.param("store.url", "http://h:port", "[Pp]ort", id="no port"),
        pytest.param("store.url", "http://", "host", id="no host"),
        pytest.param("store.url", "http://[::1", "IPv6", id="half an address"),
        pytest.param("bootstrap.servers", "a b:9092", "HOST:PORT", id="blank in a host"),
        pytest.param("bootstrap.servers", "a:9092:1x", "HOST:PORT", id="two ports"),
        pytest.param("bootstrap.servers", "a:99999", "HOST:PORT", id="no such port"),
        pytest.param("bootstrap.servers", ",,", "HOST:PORT", id="commas alone"),
        pytest.param("bootstrap.servers", "a:", "HOST:PORT", id="empty port"),
        pytest.param("metrics.listen", "host", "HOST:PORT", id="a host alone"),
        pytest.param("metrics.listen", "a:0", "HOST:PORT", id="port 0"),
        pytest.param("metrics.listen", "65536", "HOST:PORT", id="past the last port"),
        pytest.param("metrics.listen", "::1:9464", "HOST:PORT", id="version 6 without brackets"),
        pytest.param("bootstrap.servers", "http://a/b", "HOST:PORT", id="a web page"),
        pytest.param("group", "é" * 16384, "32767 bytes", id="a group too long"),
        pytest.param("topics.regex", "(", "regular expression", id="no pattern"),
        pytest.param("topics.regex", "t[", "a class lacks its ']'", id="open class"),
        pytest.param(FOLDER, "a/../b", "expected a plain folder", id="up"),
        pytest.param(
            "tombstone.encoded.partition", "a//b", "expected a plain folder", id="no segment"
        ),
        pytest.param(
            "tombstone.encoded.partition", "d" * 513, "expected at most 512 bytes", id="long"
        ),
    ],
)
def test_what_cannot_be_read_says_what_was_expected(name: str, value: object, says: str) -> None:
    """An error about a value says what was expected."""
    with pytest.raises(ValueError, match=says):
        BY_NAME[name].read(value)


@given(st.sets(st.integers(0, 5000), min_size=1))
def test_partitions_are_those_named(partitions: set[int]) -> None:
    """A list of partitions is a sorted set, however it is written."""
    text = ",".join(map(str, partitions))

    assert tuple(sorted(partitions)) == BY_NAME["partitions"].read(text)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("2026-11-21T02:00:00Z", 1_795_226_400_000),
        ("2026-11-21T03:00:00+01:00", 1_795_226_400_000),
        ("2026-11-21", 1_795_219_200_000),
        ("1795226400000", 1_795_226_400_000),
        ("-100000000000", -100_000_000_000),
        ("0", 0),
    ],
)
def test_a_time_is_a_date_or_milliseconds(text: str, ms: int) -> None:
    """A time may be a date, which is its midnight in UTC, a date and time, or milliseconds."""
    assert ms == moment(text)


@pytest.mark.parametrize("text", ["2026-11-21T14:30:00", "2026-11-21 14:30", "20261121T143000"])
def test_a_time_without_a_zone_is_refused_with_both_spellings(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Typed in New York, it would otherwise cut a restore five hours early."""
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    both = r"2026-11-21T14:30:00Z for UTC, or 2026-11-21T14:30:00-05:00 for"

    with pytest.raises(ValueError, match=both):
        moment(text)

    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("text", ["99999999999999999999", "253402300800000", "-62135596800001"])
def test_a_time_that_no_calendar_has_is_refused(text: str) -> None:
    """Nobody could be shown it, and the ledger has no room for it."""
    with pytest.raises(ValueError, match="from year 1 to 9999"):
        moment(text)


@pytest.mark.parametrize("text", ["1795226400", "179522640", "-1795226400"])
def test_seconds_are_refused(text: str) -> None:
    """A number that looks like seconds is refused: as milliseconds it would mean January 1970."""
    with pytest.raises(ValueError, match="looks like seconds"):
        moment(text)


@pytest.mark.parametrize("text", ["", "yesterday", "12", "2026-13-01"])
def test_what_is_no_time_is_refused(text: str) -> None:
    """Text that is not a time is refused with an example."""
    with pytest.raises(ValueError, match="2026-11-21T02:00:00Z"):
        moment(text)
