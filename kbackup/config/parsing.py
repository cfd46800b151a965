"""Text to value: how text from the command line or a file becomes a setting.

Every reader accepts text as well as the value itself, because the command line passes both.  Text
that cannot be read raises a ``ValueError`` that says what was expected.  The types below pair a
reader with a word for the documentation.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from pydantic import BeforeValidator, SkipValidation

from kbackup import plugins
from kbackup.errors import ConfigurationError, IllegalTopicNameError
from kbackup.java.regex import PatternError, translate
from kbackup.naming import DIRECTORY_BYTES_MAX, PARTITION_MAX, check_topic, expressions
from kbackup.naming.expressions import Expression
from kbackup.naming.name_template import NameTemplate
from kbackup.naming.places import Place
from kbackup.options import names_host, read_boolean, read_duration, read_integer, read_names

PARTITIONS_MAX: Final = 200_000
"""The most partitions that one ``--partitions`` may name: more than a cluster can hold."""


PORT_MAX: Final = 65_535

KAFKA_STRING_MAX: Final = 32_767
"""The most bytes of a string in Kafka's protocol, whose length is a signed 16-bit number."""


@dataclass(frozen=True, slots=True)
class Kind:
    """The documentation's word for a type."""

    word: str


_SERVER: Final = re.compile(
    r"(?:[A-Za-z_]+://)?"
    r"(?:(?:\[[0-9A-Fa-f:.]+(?:%[\w.-]+)?\]|[^\s:/\[\]@=]+)(?::(\d{1,5}))?"
    r"|[0-9A-Fa-f]*:[0-9A-Fa-f]*:[0-9A-Fa-f:.]*)",
    re.ASCII,
)
"""``host``, ``host:port``, ``[v6]:port`` or a bare v6 address, perhaps after ``PROTOCOL://``."""
_NEXT_PAIR: Final = re.compile(r",(?=\s*[\w.-]+=)")


def _text(value: object) -> object:
    return value.strip() if isinstance(value, str) else value


def _optional(value: object) -> object:
    """Only blanks means "not set", as for the connectors."""
    return None if isinstance(value, str) and not value.strip() else _text(value)


def _word(value: object) -> object:
    return value.strip().lower() if isinstance(value, str) else value


def _switch(value: object) -> bool:
    """One of our own variables, such as ``KBACKUP_DEBUG=1``."""
    known = {"1": True, "yes": True, "on": True, "0": False, "no": False, "off": False, "": False}
    answer = known.get(str(value).strip().lower())
    return read_boolean(value) if answer is None else answer


def _integer(value: object) -> object:
    return read_integer(value) if isinstance(value, str) else value


def _limit(value: Any) -> object:
    """Read a number from 1 on, or -1 for the default."""
    number = _integer(value)
    if number == 0:
        raise ValueError("expected 1 or more, or -1 for the default")
    return number


def _optional_integer(value: object) -> object:
    return None if _optional(value) is None else _integer(value)


def _seconds(value: object) -> object:
    return read_duration(value) if isinstance(value, str) else value


def moment(text: str) -> int:
    """Return the milliseconds since the epoch of a time in RFC 3339, a date, or a number of them.

    A time without a zone, and a date, which is its midnight, are UTC.

    Raises:
        ValueError: If the text is none of these.
    """
    if re.fullmatch(r"-?\d{12,}", text.strip(), re.ASCII):
        return int(text)
    if re.fullmatch(r"-?\d{9,}", text.strip(), re.ASCII):  # of 1970 or 1972 as milliseconds
        raise ValueError("this looks like seconds; expected milliseconds since 1970, or a date")
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise ValueError(
            "expected a time such as 2026-11-21T02:00:00Z, a date, or milliseconds since 1970"
        ) from error
    aware = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    return (aware - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def _moment(value: object) -> object:
    text = _optional(value)
    return moment(text) if isinstance(text, str) else text


def _topics(value: object) -> object:
    names = read_names(value)
    for name in names:
        try:
            check_topic(name)
        except IllegalTopicNameError as error:
            raise ValueError(str(error)) from error
    return names


def _pairs(value: object) -> object:
    """``K=V``, repeated, or separated by commas that a further ``K=`` follows."""
    if isinstance(value, Mapping):
        return dict(value)
    parts: Iterable[str] = [value] if isinstance(value, str) else value  # type: ignore[assignment]
    pairs: dict[str, str] = {}
    for pair in (piece for part in parts for piece in _NEXT_PAIR.split(part) if piece.strip()):
        name, equals, text = pair.partition("=")
        if not equals or not name.strip():
            raise ValueError("expected NAME=VALUE")
        pairs[name.strip()] = text.strip()
    return pairs


def _partitions(value: object) -> object:
    """``0,3-5`` to the partitions it names, sorted."""
    if not isinstance(value, str):
        return value
    found: set[int] = set()
    if value.strip() and not read_names(value):
        raise ValueError("expected partitions such as 0,3-5")
    for part in read_names(value):
        match = re.fullmatch(r"(\d{1,10})(?:\s*-\s*(\d{1,10}))?", part, re.ASCII)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last or last > PARTITION_MAX:
            raise ValueError("expected partitions such as 0,3-5")
        if len(found) + last - first >= PARTITIONS_MAX:
            raise ValueError(f"expected at most {PARTITIONS_MAX} partitions")
        found.update(range(first, last + 1))
    return tuple(sorted(found)) or None


def _servers(value: object) -> object:
    """``host:port`` lists as the client reads them; a misspelt one would cost a long lookup."""
    text = _optional(value)
    if not isinstance(text, str):
        return text
    servers = read_names(text)
    if not servers:
        raise ValueError("expected HOST:PORT, separated by commas")
    for server in servers:
        match = _SERVER.fullmatch(server)
        if match is None or not 0 < int(match[1] or 9092) <= PORT_MAX:
            raise ValueError("expected HOST:PORT, separated by commas")
    return text


def _registry_urls(value: object) -> object:
    urls = read_names(value)
    if not all(map(names_host, urls)):
        raise ValueError("each URL must begin with http:// or https:// and name a host")
    if any("@" in urlsplit(url).netloc for url in urls):
        raise ValueError(
            "credentials do not belong in a URL: set schema.registry.basic.auth.user.info instead"
        )
    return urls


def _directory(value: object) -> object:
    text = _text(value)
    if isinstance(text, str):
        segments = text.split("/")
        if {"", ".", ".."} & set(segments) or not text.isprintable():
            raise ValueError("expected a plain folder, such as tombstone")
        if len(text.encode()) > DIRECTORY_BYTES_MAX:
            raise ValueError(f"expected at most {DIRECTORY_BYTES_MAX} bytes")
    return text


def _group(value: object) -> object:
    text = _optional(value)
    if isinstance(text, str) and len(text.encode()) > KAFKA_STRING_MAX:
        raise ValueError(f"expected at most {KAFKA_STRING_MAX} bytes, which is Kafka's limit")
    return text


def names_store(url: str) -> bool:
    """Whether *url*, a ``store.url``, names a store itself, not an S3-compatible server."""
    scheme, separator, _ = url.partition("://")
    return separator != "" and scheme not in ("http", "https")


def _store_url(value: object) -> object:
    text = _optional(value)
    if not isinstance(text, str):
        return text
    scheme, separator, _ = text.partition("://")
    if not separator:
        raise ValueError("write the scheme: http://HOST:PORT, https://HOST or file:///FOLDER")
    if names_store(text):
        try:
            store = plugins.load("stores", scheme)
        except ConfigurationError as error:
            why = f"expected http:// or https://, or the URL of a store: {error.why}"
            raise ValueError(why) from error
        store.check_url(text)
        return text
    parts = urlsplit(text)
    if parts.username is not None or parts.password is not None:
        secrets = [each.option.name for each in plugins.declared() if each.option.is_secret]
        raise ValueError(f"credentials do not belong in a URL: set {', '.join(secrets)} instead")
    _ = parts.port  # raises ValueError if it is not a number
    if not parts.hostname:
        raise ValueError("it has no host")
    if parts.query or parts.fragment:
        raise ValueError("a server's URL has no query and no fragment")
    return text.rstrip("/")


def _java_pattern(value: object) -> object:
    text = _optional(value)
    if isinstance(text, str):
        try:
            translate(text)
        except PatternError as error:
            raise ValueError(f"not a Java regular expression: {error}") from error
    return text


def _object_name(value: object) -> object:
    text = _optional(value)
    if isinstance(text, str):
        try:
            NameTemplate.read(text)
        except ValueError as error:
            raise ValueError(f"names could not be read back: {error}") from error
    return text


def _places(value: object) -> object:
    """``TOPIC:PARTITION:OFFSET,...``, as `restore verify` prints it."""
    names: Iterable[str] = read_names((value,) if isinstance(value, str) else value)
    if isinstance(value, str) and not names:
        names = [value]  # of nothing, such as a variable that is not set, no run is to be made
    try:
        return tuple(Place.parse(text) for text in names)
    except ValueError:
        raise ValueError("expected TOPIC:PARTITION:OFFSET, separated by commas") from None


def _expressions(value: object) -> object:
    return value if isinstance(value, tuple) else expressions.read(str(value))


def _read(reader: Callable[[Any], object], word: str) -> tuple[BeforeValidator, Kind]:
    return BeforeValidator(reader), Kind(word)


Text = Annotated[str, *_read(_text, "text")]
"""Text without surrounding blanks, as in Kafka's ``ConfigDef``."""
Directory = Annotated[str, *_read(_directory, "text")]
"""Folders within those of a topic, with slashes between them."""
Untrimmed = Annotated[str | None, Kind("text")]
OptionalText = Annotated[str | None, *_read(_optional, "text")]
Word = _read(_word, "choice")
ExactWord = _read(_text, "choice")
Boolean = Annotated[bool, *_read(read_boolean, "boolean")]
Switch = Annotated[bool, *_read(_switch, "switch")]
Integer = Annotated[int, *_read(_integer, "integer")]
Limit = Annotated[int, *_read(_limit, "integer")]
OptionalInteger = Annotated[int | None, *_read(_optional_integer, "integer")]
Duration = Annotated[float, *_read(_seconds, "duration")]
"""Seconds; ``500ms``, ``10s``, ``5m``, ``2h``, ``1d``; without a unit seconds."""
Moment = Annotated[int | None, *_read(_moment, "moment")]
"""Milliseconds since the epoch."""
Names = Annotated[tuple[str, ...], *_read(read_names, "list")]
RegistryUrls = Annotated[tuple[str, ...], *_read(_registry_urls, "list")]
Topics = Annotated[tuple[str, ...], *_read(_topics, "list")]
Pairs = Annotated[dict[str, str], *_read(_pairs, "NAME=VALUE")]
Servers = Annotated[str | None, *_read(_servers, "HOST:PORT")]
ConsumerGroup = Annotated[str | None, *_read(_group, "text")]
Partitions = Annotated[tuple[int, ...] | None, *_read(_partitions, "partitions")]
StoreUrl = Annotated[str | None, *_read(_store_url, "URL")]
ObjectPlaces = Annotated[
    SkipValidation[tuple[Place, ...]], *_read(_places, "TOPIC:PARTITION:OFFSET")
]
Expressions = Annotated[
    SkipValidation[tuple[Expression, ...]], *_read(_expressions, "TOPIC:PATTERN")
]
ObjectName = Annotated[str | None, *_read(_object_name, "template")]
JavaPattern = Annotated[str | None, *_read(_java_pattern, "regular expression")]
