"""Declare properties for commands: who uses each, under which heading, how text is its value.

`kbackup.options` makes declarations.  Here are the commands that they name, the readers of the
tool's own types, and `Property`: a declaration with the commands, heading and plugins it belongs
to.  A reader accepts text as well as the value itself, because the command line passes both; its
``ValueError`` says what was expected.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Concatenate, Final, ParamSpec, TypeVar, Unpack
from urllib.parse import urlsplit

from kbackup import options, plugins
from kbackup.errors import ConfigurationError, IllegalTopicNameError
from kbackup.java.regex import PatternError, translate
from kbackup.naming import (
    DIRECTORY_BYTES_MAX,
    PARTITION_MAX,
    Place,
    check_topic,
    generic,
    words_of,
)
from kbackup.naming.generic import Expression
from kbackup.options import Commands, More, Option, names_host, read_integer, read_names
from kbackup.plugins import Declared

SINK: Final = frozenset({"sink"})
RESTORE: Final = frozenset({"restore"})
READING: Final = frozenset(
    {
        "restore", "list", "cat", "query", "verify", "against", "thaw", "reindex", "accept",
        "copy", "expire", "groups", "drill",
    }
)  # fmt: skip
"""The commands that read a backup."""
KAFKA: Final = frozenset(
    {"sink", "restore", "configs", "groups", "access", "against", "drill", "doctor"}
)
"""The commands that talk to a cluster."""
RUNS: Final = frozenset({"sink", "restore"})
DRILL: Final = frozenset({"drill"})
STATUS: Final = frozenset({"status", "restore-status", "configs", "access", "abort-uploads"})
"""The commands that read run records: they open no object, so they do not depend on the layout."""
KEYS: Final = frozenset({"keys"})
"""The commands that are about keys alone."""
WITHOUT_LAYOUT: Final = STATUS | KEYS
"""The commands that open no object of records."""
FINDING: Final = RESTORE | {"groups", "against"}
"""The commands that find a restore again by the options that it was given."""
NAMING: Final = FINDING | {"restore-status"}
"""The same, and the one that only asks which restore it is: what tells it from others."""
SETTLING: Final = RESTORE | {"configs", "groups", "access"}
"""The commands that write to the target of a restore."""
CHOOSING: Final = SINK | READING - {"cat"} | STATUS
"""The commands that select topics and partitions by options; a cat is given one place."""
TIMED: Final = NAMING | {"cat"}
"""The commands that choose records by time."""
SPARK: Final = RUNS | {"verify", "against", "query", "drill"}
"""The commands that may start Spark."""
CONVERTING: Final = RUNS | {"cat", "query", "drill"}
"""The commands that look into records."""
ALL: Final = SINK | READING | STATUS | KEYS | {"doctor", "config"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Property(Option[Any]):
    """One setting as it appears on the command line, in files and in the documentation.

    Attributes:
        declared: What its plugins declare; None if it is the tool's own.
        plugins: The extension point and the names of the plugins that declare it.
    """

    commands: frozenset[str]
    group: str
    declared: Option[Any] | None = None
    plugins: tuple[tuple[str, str], ...] = ()
    is_built_in: bool = True

    def url(self, value: Any) -> str:
        """Return the URL of the backup whose place is *value*."""
        return f"{self.plugins[0][1]}://{value}"

    @property
    def is_flag(self) -> bool:
        """Whether its option takes no value."""
        return self.type in ("boolean", "switch")

    @property
    def option_names(self) -> tuple[str, ...]:
        """Its options as click takes them: ``("-k", "--bootstrap-servers")``, ``("--a/--b",)``."""
        if not self.is_option:
            return ()
        dashed = self.name.replace(".", "-").replace("_", "-")
        option, off = f"--{dashed}", self.off
        if off is None and self.type == "boolean":
            off = f"--no-{dashed}"
        as_written = (f"--{self.name}",) if "_" in self.name else ()  # as its files spell it
        return (*self.short, *as_written, option if off is None else f"{option}/{off}")

    @property
    def variable(self) -> str:
        """Its environment variable: ``KBACKUP_FLUSH_SIZE``."""
        return variable(self.name)

    @property
    def other_variables(self) -> tuple[str, ...]:
        """Those of its option's other spellings: ``KBACKUP_BUCKET``."""
        return tuple(
            variable(name.removeprefix("--").replace("-", "."))
            for name in self.short
            if name.startswith("--")
        )


VARIABLES: Final = "KBACKUP_"
"""What the variables of properties begin with."""


def variable(name: str) -> str:
    """Return the environment variable of property *name*."""
    return VARIABLES + name.upper().replace(".", "_")


class PropertyGroup:
    """Settings under one heading.

    Attributes:
        commands: The commands that use the group's settings, unless a setting names others.
        in_files: Its settings may be set in a file.
    """

    title: ClassVar[str]
    commands: ClassVar[frozenset[str]]
    in_files: ClassVar[bool]

    def __init_subclass__(
        cls, *, title: str = "", commands: frozenset[str] = frozenset(), in_files: bool = True
    ) -> None:
        """Declare a group, or with no *title* a class that joins groups."""
        if title:
            cls.title, cls.commands, cls.in_files = title, commands, in_files


P = ParamSpec("P")
T = TypeVar("T")


def _nameless(declare: Callable[Concatenate[str, P], Option[T]]) -> Callable[P, Option[T]]:
    """Return *declare* without the name: that of a setting is its attribute's, with dots."""

    def declared(*args: P.args, **kwargs: P.kwargs) -> Option[T]:
        return declare("", *args, **kwargs)

    return declared


boolean = _nameless(options.boolean)
duration = _nameless(options.duration)
integer = _nameless(options.integer)
milliseconds = _nameless(options.milliseconds)
optional_integer = _nameless(options.optional_integer)
optional_text = _nameless(options.optional_text)
parsed = _nameless(options.parsed)
switch = _nameless(options.switch)
text = _nameless(options.text)
verbatim = _nameless(options.verbatim)
words = _nameless(options.words)
"""`kbackup.options`, for the attributes of a `PropertyGroup`."""


def path(help: str, **more: Unpack[More]) -> Option[str | None]:  # noqa: A002
    """Declare the place of a file or folder, which may be absent."""
    return optional_text(help, type="file", **more)


def pattern(help: str, *, commands: Commands, example: str) -> Option[str | None]:  # noqa: A002
    """Declare a regular expression of Java's, which may be absent."""
    return optional_text(
        help,
        type="regular expression",
        check=check_pattern,
        commands=commands,
        example=example,
        is_literal=True,
    )


def properties(group: type[PropertyGroup]) -> Iterator[Property]:
    """Yield the properties that *group* declares, in its order."""
    for option in vars(group).values():
        if isinstance(option, Option):
            commands = of_side(group.commands, option.commands)
            is_property = option.is_property and group.in_files
            yield _placed(option, commands=commands, group=group.title, is_property=is_property)


def _placed(option: Option[Any], **place: Any) -> Property:
    stated = {item.name: getattr(option, item.name) for item in fields(option)}
    is_option = option.is_option and not option.is_secret  # it would show in `ps`
    return Property(**stated | {"is_option": is_option} | place)


_SINK_AND_RESTORE: Final = {
    "formats": ALL - WITHOUT_LAYOUT,
    "converters": CONVERTING,
    "partitioners": RUNS,
    "extractors": SINK,
    "stores": ALL,
}
"""The commands that use an option declared for both sides, by extension point."""

PREFIXES: Final = {"converters": ("key.converter.", "value.converter.")}
"""Prefixes of the names of plugins' options, by extension point."""


def of_side(both: frozenset[str], side: Commands) -> frozenset[str]:
    """Return those of the commands *both* that are of a *side*, as declarations name it."""
    if isinstance(side, frozenset):
        return side
    return {"sink": both & SINK, "restore": both - SINK, "both": both}[side]


def of_plugins(declared: Declared[Option[Any]]) -> Iterator[Property]:
    """Yield the properties of an option that plugins declare, one for each of its prefixes."""
    option, extension_point = declared.option, declared.extension_point
    # of several stores, it is listed with the one that its name begins with
    store = max(declared.plugins, key=lambda name: option.name.startswith(f"{name}."))
    headings = {"converters": "Converters", "stores": store.upper()}
    for prefix in PREFIXES.get(extension_point, ("",)):
        yield _placed(
            option,
            name=prefix + option.name,
            aliases=tuple(prefix + alias for alias in option.aliases),
            commands=of_side(_SINK_AND_RESTORE[extension_point], option.commands),
            group=headings.get(extension_point, "Layout"),
            declared=option,
            plugins=tuple((extension_point, plugin) for plugin in declared.plugins),
            is_built_in=declared.is_built_in,
        )


PARTITIONS_MAX: Final = 200_000
"""The most partitions that one ``--partitions`` may name: more than a cluster can hold."""

PORT_MAX: Final = 65_535

KAFKA_STRING_MAX: Final = 32_767
"""The most bytes of a string in Kafka's protocol, whose length is a signed 16-bit number."""

_SERVER: Final = re.compile(
    r"(?:[A-Za-z_]+://)?"
    r"(?:(?:\[[0-9A-Fa-f:.]+(?:%[\w.-]+)?\]|[^\s:/\[\]@=]+)(?::(\d{1,5}))?"
    r"|[0-9A-Fa-f]*:[0-9A-Fa-f]*:[0-9A-Fa-f:.]*)",
    re.ASCII,
)
"""``host``, ``host:port``, ``[v6]:port`` or a bare v6 address, perhaps after ``PROTOCOL://``."""
_NEXT_PAIR: Final = re.compile(r",(?=\s*[\w.-]+=)")


def _optional(value: Any) -> Any:
    """Only blanks means "not set", as for the connectors."""
    if isinstance(value, str):
        return value.strip() or None
    return value


def read_limit(value: object) -> int:
    """Read a number from 1 on, or -1 for the default."""
    number = read_integer(value)
    if number == 0 or number < -1:
        raise ValueError("expected 1 or more, or -1 for the default")
    if number >= 2**31:
        raise ValueError(f"expected at most {2**31 - 1}")
    return number


_DATE: Final = re.compile(r"\d{4}-?\d\d-?\d\d", re.ASCII)

_YEAR_1_MS: Final = -62_135_596_800_000

_YEAR_9999_MS: Final = 253_402_300_799_999


def moment(text: str) -> int:
    """Return the milliseconds since the epoch of a time in RFC 3339, a date, or a number of them.

    A date is its midnight in UTC.

    Raises:
        ValueError: If the text is none of these, or a time without a zone: whether it is UTC or
            what a clock on the wall shows, only its author knows.
    """
    if re.fullmatch(r"0|-?\d{12,}", text.strip(), re.ASCII):
        if not _YEAR_1_MS <= int(text) <= _YEAR_9999_MS:
            raise ValueError("expected milliseconds since 1970, from year 1 to 9999")
        return int(text)
    if re.fullmatch(r"-?\d{9,}", text.strip(), re.ASCII):  # of 1970 or 1972 as milliseconds
        raise ValueError("this looks like seconds; expected milliseconds since 1970, or a date")
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise ValueError(
            "expected a time such as 2026-11-21T02:00:00Z, a date, or milliseconds since 1970"
        ) from error
    if found.tzinfo is None and not _DATE.fullmatch(text.strip()):
        local = found.astimezone()
        raise ValueError(
            f"it has no time zone; write {found.isoformat()}Z for UTC, or {local.isoformat()} for "
            "the time here"
        )
    aware = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    return (aware - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def read_moment(value: Any) -> int | None:
    """Read milliseconds since the epoch: see `moment`."""
    found = _optional(value)
    return moment(found) if isinstance(found, str) else found


def read_topics(value: object) -> tuple[str, ...]:
    """Read names that Kafka allows for topics."""
    names = read_names(value)
    for name in names:
        try:
            check_topic(name)
        except IllegalTopicNameError as error:
            raise ValueError(str(error)) from error
    return names


def read_pairs(value: Any) -> dict[str, str]:
    """Read ``K=V``, repeated, or separated by commas that a further ``K=`` follows."""
    if isinstance(value, Mapping):
        return dict(value)
    parts: Iterable[str] = [value] if isinstance(value, str) else value
    pairs: dict[str, str] = {}
    for pair in (piece for part in parts for piece in _NEXT_PAIR.split(part) if piece.strip()):
        name, equals, text = pair.partition("=")
        if not equals or not name.strip():
            raise ValueError("expected NAME=VALUE")
        pairs[name.strip()] = text.strip()
    return pairs


def read_partitions(value: Any) -> tuple[int, ...] | None:
    """Read ``0,3-5`` as the partitions it names, sorted."""
    if value is None or isinstance(value, tuple):
        return value
    text = str(value)
    found: set[int] = set()
    if text.strip() and not read_names(text):
        raise ValueError("expected partitions such as 0,3-5")
    for part in read_names(text):
        match = re.fullmatch(r"(\d{1,10})(?:\s*-\s*(\d{1,10}))?", part, re.ASCII)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last or last > PARTITION_MAX:
            raise ValueError("expected partitions such as 0,3-5")
        if len(found) + last - first >= PARTITIONS_MAX:
            raise ValueError(f"expected at most {PARTITIONS_MAX} partitions")
        found.update(range(first, last + 1))
    return tuple(sorted(found)) or None


def check_servers(text: str) -> None:
    """Refuse what the client would not read as brokers; a misspelt one would cost a long lookup."""
    servers = read_names(text)
    matches = [_SERVER.fullmatch(server) for server in servers]
    if not servers or not all(found and 0 < int(found[1] or 9092) <= PORT_MAX for found in matches):
        raise ValueError("expected HOST:PORT, separated by commas")


def read_listen(value: Any) -> str | None:
    """Read where to listen, as ``HOST:PORT``; a port alone is one of this host."""
    text: str | None = _optional(value)
    if text is None:
        return None
    host, _, port = text.rpartition(":")
    is_port = re.fullmatch(r"\d{1,5}", port, re.ASCII) and 0 < int(port) <= PORT_MAX
    is_host = re.fullmatch(r"[^\s:/\[\]@=]*|\[[0-9A-Fa-f:.]+\]", host)
    if not is_port or not is_host:
        raise ValueError("expected a port, or HOST:PORT")
    return f"{host or '127.0.0.1'}:{port}"


def read_registry_urls(value: object) -> tuple[str, ...]:
    """Read the URLs of one Schema Registry."""
    urls = read_names(value)
    if not all(map(names_host, urls)):
        raise ValueError("each URL must begin with http:// or https:// and name a host")
    if any("@" in urlsplit(url).netloc for url in urls):
        raise ValueError(
            "credentials do not belong in a URL: set schema.registry.basic.auth.user.info instead"
        )
    return urls


def check_folder(text: str) -> None:
    """Refuse what is not folders within those of a topic, with slashes between them."""
    if {"", ".", ".."} & set(text.split("/")) or not text.isprintable():
        raise ValueError("expected a plain folder, such as tombstone")
    if len(text.encode()) > DIRECTORY_BYTES_MAX:
        raise ValueError(f"expected at most {DIRECTORY_BYTES_MAX} bytes")


def check_not_empty(text: str) -> None:
    """Refuse text of which nothing is left."""
    if not text:
        raise ValueError("expected at least one character")


def check_group(text: str) -> None:
    """Refuse the name of a consumer group that Kafka's protocol has no room for."""
    if len(text.encode()) > KAFKA_STRING_MAX:
        raise ValueError(f"expected at most {KAFKA_STRING_MAX} bytes, which is Kafka's limit")


def names_store(url: str) -> bool:
    """Whether *url*, a ``store.url``, names a store itself, not an S3-compatible server."""
    scheme, separator, _ = url.partition("://")
    return separator != "" and scheme not in ("http", "https")


def read_store_url(value: Any) -> str | None:
    """Read the URL of a store, or of an S3-compatible server."""
    text: str | None = _optional(value)
    if text is None:
        return None
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


def check_pattern(text: str) -> None:
    """Refuse what is no regular expression of Java's."""
    try:
        translate(text)
    except PatternError as error:
        raise ValueError(f"not a Java regular expression: {error}") from error


def check_template(text: str) -> None:
    """Refuse a template of names that could not be read back."""
    try:
        words_of(text)
    except ValueError as error:
        raise ValueError(f"names could not be read back: {error}") from error


def read_places(value: Any) -> tuple[Place, ...]:
    """Read ``TOPIC:PARTITION:OFFSET,...``, as `restore verify` prints it."""
    if isinstance(value, tuple) and all(isinstance(one, Place) for one in value):
        return value
    names: Iterable[str] = read_names((value,) if isinstance(value, str) else value)
    if isinstance(value, str) and not names:
        names = [value]  # of nothing, such as a variable that is not set, no run is to be made
    try:
        return tuple(Place.parse(text) for text in names)
    except ValueError:
        raise ValueError("expected TOPIC:PARTITION:OFFSET, separated by commas") from None


def read_expressions(value: Any) -> tuple[Expression, ...]:
    """Read the entries of ``topic.regex.list``."""
    return value if isinstance(value, tuple) else generic.read(str(value))
