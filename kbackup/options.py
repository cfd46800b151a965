"""Declare a property once: its name, type, default, check and help.

From a declaration follow the property in files (``parquet.codec``), the environment variable
(``KBACKUP_PARQUET_CODEC``), the command-line option (``--parquet-codec``), the reference page and
the check.  The functions below make one of each type, for the tool's own settings
(`kbackup.config.layout`, `kbackup.config.running`) and for the options of plugins alike::

    CODEC = words("parquet.codec", "Compression inside Parquet files.", ("none", "zstd"), "zstd")
    OPTIONS = (CODEC,)

A plugin reads it from the mapping it is given: ``CODEC.of(options)``.  `kbackup.plugins` says how a
package announces its declarations.

What a plugin cannot do, it declares among its options, so that a file that relies on it is refused
(exit 2) instead of being carried out differently::

    INDENT = Unsupported("json.indent.output", true, "it spreads JSON over lines, and ...")
    OPTIONS = (CODEC, INDENT)

Only values that would change what is written or read are refused; the others are accepted without
effect.  The last functions here recognize such values.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final, Generic, Literal, Self, TypedDict, TypeVar, Unpack, overload
from urllib.parse import urlsplit

from kbackup.errors import ConfigurationError

_UNITS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
"""In ms."""

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|)", re.ASCII)
_DURATION_MOST_S: Final = 36_500 * 86_400.0

DURATION_MOST_MS: Final = int(_DURATION_MOST_S * 1000)
"""What a process can wait for: a hundred years."""
_URL: Final = re.compile(r"https?://[^\s/?#]+[^\s?#]*")

MSK_IAM: Final = "AWS_MSK_IAM"
"""Amazon's mechanism, which librdkafka does not have: see `kbackup.kafka.msk`."""

MSK_OPTIONS: Final = (
    "awsProfileName", "awsRoleArn", "awsRoleSessionName", "awsRoleExternalId", "awsStsRegion",
)  # fmt: skip
"""Options of ``IAMLoginModule`` that count.  They are passed on beside librdkafka's properties."""


def read_boolean(value: object) -> bool:
    """Return true or false.

    Source: Kafka's ``ConfigDef.parseType``: either word in any case, nothing else.

    Raises:
        ValueError: If it is neither.
    """
    known = {"true": True, "false": False}
    answer = value if isinstance(value, bool) else known.get(str(value).strip().lower())
    if answer is None:
        raise ValueError("expected true or false")
    return answer


def read_switch(value: object) -> bool:
    """Return true or false, of these words or of ``1``, ``yes``, ``on`` and their opposites.

    Raises:
        ValueError: If it is none of them.
    """
    known = {"1": True, "yes": True, "on": True, "0": False, "no": False, "off": False, "": False}
    answer = known.get(str(value).strip().lower())
    return read_boolean(value) if answer is None else answer


def read_integer(value: object) -> int:
    """Return a whole number of at most 19 digits.

    Raises:
        ValueError: If it is not one.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if re.fullmatch(r"\s*[+-]?\d{1,19}\s*", str(value), re.ASCII) is None:
        raise ValueError("expected a whole number")
    return int(str(value))


def read_duration(text: str) -> float:
    """Return the seconds of ``500ms``, ``10s``, ``5m``, ``2h``, ``1d``; of a number, itself.

    Raises:
        ValueError: If it is none of these, no whole milliseconds, or more than a hundred years.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError("expected a duration such as 7d, 12h, 1.5m, 10s or 500ms")
    milliseconds = _whole_ms(match[1], match[2] or "s")
    if milliseconds > DURATION_MOST_MS:
        raise ValueError("expected at most 36500d")
    return milliseconds / 1000


def read_days(value: object) -> int:
    """Return whole days, of a number of them or of a duration with its unit.

    Raises:
        ValueError: If it is neither, or a part of a day is left.
    """
    text = str(value).strip()
    days = read_duration(f"{text}d" if text.isdecimal() else text) / 86_400
    if days % 1:
        raise ValueError("expected whole days, such as 7 or 7d")
    return int(days)


_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGTP]?i?)B?", re.ASCII | re.IGNORECASE)


def read_size(text: str) -> int:
    """Return the bytes of ``10GiB``, ``1.5TiB``, ``500MB``; of a number, itself.

    Raises:
        ValueError: If it is none of these, or nothing.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None or match[2].lower() == "i":
        raise ValueError("expected a size such as 10GiB or 500MB")
    unit = match[2].upper()
    power = "KMGTP".index(unit[0]) + 1 if unit else 0
    size = int(Fraction(match[1]) * (1024 if unit.endswith("I") else 1000) ** power)
    if not size:
        raise ValueError("expected at least one byte")
    return size


def _whole_ms(number: str, unit: str) -> int:
    exact = Fraction(number) * _UNITS[unit]
    if exact.denominator != 1:
        raise ValueError("expected whole milliseconds")
    return int(exact)


def read_milliseconds(value: object) -> int:
    """Return whole milliseconds, of a number of them or of a duration with its unit.

    Raises:
        ValueError: If it is neither, or no whole milliseconds.
    """
    match = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None or not match[2]:
        try:
            return read_integer(value)
        except ValueError:
            raise ValueError("expected milliseconds, or a duration such as 1.5m or 10s") from None
    return _whole_ms(match[1], match[2])


def read_names(value: object) -> tuple[str, ...]:
    """Return the names of a list as Kafka's ``ConfigDef`` reads it; of several texts, all."""
    parts = [value] if isinstance(value, str) else list(value)  # type: ignore[call-overload]
    return tuple(name for part in parts for name in map(str.strip, part.split(",")) if name)


def check_path(name: str) -> None:
    """Refuse the dotted name of a field that lacks a name between its dots.

    Raises:
        ValueError: If it does.
    """
    if not all(part.strip() for part in name.split(".")):
        raise ValueError(f"{name!r} has an empty name between its dots")


def names_host(url: str) -> bool:
    """Whether *url* begins with http:// or https:// and names a host, and nothing but a path."""
    if _URL.fullmatch(url) is None:
        return False
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:  # such as brackets around something that is not an address
        return False


T = TypeVar("T")

Commands = Literal["sink", "restore", "both"] | frozenset[str]


@dataclass(frozen=True, slots=True)
class Suspicion:
    """A value that is allowed and probably not what was meant: a warning.

    Attributes:
        applies: Whether it is about a text, which is not empty.
        why: What the value does.
        do: What to write instead; may be empty.
    """

    applies: Callable[[str], bool] = field(repr=False)
    why: str
    do: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option(Generic[T]):
    """One property, as it is declared.

    As an attribute of a class of settings it is the value that its instance was given.

    Attributes:
        name: The property, such as ``partition.field.name``.  A converter's stands without its
            prefix: ``schemas.enable`` is ``key.converter.schemas.enable`` for keys and
            ``value.converter.schemas.enable`` for values.  Given as empty, it is that of the
            attribute that declares it, with dots.
        help: One sentence.
        type: The word for its type in the reference.
        default: The value where none is given, of the option's type; may be None.
        read: Turns text, or a value of its type, into the value.  Its ``ValueError`` says what
            was expected.
        commands: Which side uses it: "sink", "restore" (with all commands that read a backup),
            or "both"; for the tool's own, the commands themselves.
        choices: The words it may be; empty where any value of its type will do.
        example: A value for the reference.
        is_required: A run that uses the plugin needs it.
        is_secret: Masked wherever it is shown, and not a command-line option, which anyone
            on the machine could read.  Its name must look like a secret's: see
            `kbackup.config.issues.is_secret`.
        aliases: Other names that files may use.
        mistaken: Wrong names that people have used: a warning about one suggests this option.
        short: Other spellings of the command-line option, such as ``--region``.
        off: The command-line option that turns it off, such as ``--once`` for ``--follow``.
        is_option: Has a command-line option, unless it is a secret.
        is_property: May be set in a file; options about output may not.
        is_repeated: The command-line option may be given several times.
        is_count: The command-line option counts, as ``-vv`` does.
        is_place: A store's only: after ``NAME://``, the store's name, the value is the URL of a
            backup, so that ``store.url`` need not be given.
        is_literal: Dollar signs and brackets have a meaning in its values: nothing in them is a
            placeholder that was left.
        for_values: A format's only: the default in the connectors' layout where that is another
            one; None where it is not.
        must_fit: A format's only: given, and not as its default, where the format of a file does
            not declare it, it is an error instead of having no effect.
        needs: Options without which this one cannot be used; see `check_needs`.
        ignored_without: An option without which this one is ignored, with a warning; may be empty.
        suspicions: Values of it that are worth a warning.
    """

    name: str
    help: str
    type: str
    default: T
    read: Callable[[Any], T] = field(repr=False)
    commands: Commands = "both"
    choices: tuple[str, ...] = ()
    example: str = ""
    is_required: bool = False
    is_secret: bool = False
    aliases: tuple[str, ...] = ()
    mistaken: tuple[str, ...] = ()
    short: tuple[str, ...] = ()
    off: str | None = None
    is_option: bool = True
    is_property: bool = True
    is_repeated: bool = False
    is_count: bool = False
    is_place: bool = False
    is_literal: bool = False
    for_values: T | None = None
    must_fit: bool = False
    needs: tuple[str, ...] = ()
    ignored_without: str = ""
    suspicions: tuple[Suspicion, ...] = ()

    @property
    def attribute(self) -> str:
        """The attribute of `kbackup.config.Settings` that holds its value."""
        return re.sub(r"\W", "_", self.name)

    def __set_name__(self, owner: object, attribute: str) -> None:
        """Name the property after the attribute that declares it, where it has no name yet."""
        if not self.name:
            object.__setattr__(self, "name", attribute.replace("_", "."))

    @overload
    def __get__(self, instance: None, owner: object) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: object) -> T: ...

    def __get__(self, instance: object | None, owner: object) -> Self | T:
        """Return the declaration itself, of a class; an instance holds the value."""
        if instance is None:
            return self
        raise AttributeError(f"{owner} holds no value of {self.name}")

    def of(self, given: Mapping[str, Any]) -> T:
        """Return the value in *given*, the default where it is absent.

        The configuration hands over values of the option's type, which were checked; text, as a
        test may write it, is read here.

        Raises:
            ConfigurationError: If *given* holds text that cannot be read.
        """
        value = given.get(self.name, self.default)
        if not isinstance(value, str):
            return value  # type: ignore[no-any-return]
        try:
            return self.read(value)
        except ValueError as error:
            raise self.refusal(str(error), value=value) from error

    def refusal(
        self, why: str, do: str = "correct it", *, value: object = None
    ) -> ConfigurationError:
        """Return the error of a value that cannot be used, which names the property and *value*."""
        what = self.name if value is None else f"{self.name}={value}"
        return ConfigurationError(f"{what} cannot be used", why, do, property=self.name)


class More(TypedDict, total=False):
    """What every function below takes as well: see `Option`."""

    commands: Commands
    example: str
    is_required: bool
    is_secret: bool
    aliases: tuple[str, ...]
    mistaken: tuple[str, ...]
    short: tuple[str, ...]
    off: str
    is_option: bool
    is_property: bool
    is_repeated: bool
    is_count: bool
    is_place: bool
    is_literal: bool
    must_fit: bool
    needs: tuple[str, ...]
    ignored_without: str
    suspicions: tuple[Suspicion, ...]


def text(
    name: str,
    help: str,  # noqa: A002
    default: str = "",
    *,
    check: Callable[[str], object] | None = None,
    **more: Unpack[More],
) -> Option[str]:
    """Declare text, surrounding blanks dropped.

    Args:
        check: Raises ``ValueError`` for a text that cannot be used.
    """
    return Option(name=name, help=help, type="text", default=default, read=_checked(check), **more)


def optional_text(
    name: str,
    help: str,  # noqa: A002
    *,
    check: Callable[[str], object] | None = None,
    type: str = "text",  # noqa: A002
    **more: Unpack[More],
) -> Option[str | None]:
    """Declare text that may be absent: None, also where nothing but blanks is given."""
    read = _optional(_checked(check))
    return Option(name=name, help=help, type=type, default=None, read=read, **more)


def _optional(read: Callable[[object], T]) -> Callable[[object], T | None]:
    return lambda value: None if value is None or not str(value).strip() else read(value)


def verbatim(
    name: str,
    help: str,  # noqa: A002
    default: str | None = None,
    *,
    check: Callable[[str], object] | None = None,
    **more: Unpack[More],
) -> Option[str | None]:
    """Declare text that is taken as it is, surrounding blanks included."""

    def read(value: object) -> str | None:
        if value is not None and check is not None:
            check(str(value))
        return None if value is None else str(value)

    return Option(name=name, help=help, type="text as it is", default=default, read=read, **more)


def words(
    name: str,
    help: str,  # noqa: A002
    choices: tuple[str, ...],
    default: str,
    *,
    any_case: bool = False,
    for_values: str | None = None,
    **more: Unpack[More],
) -> Option[str]:
    """Declare one of *choices*; where *any_case*, capitals are taken for lower case."""

    def read(value: object) -> str:
        word = str(value).strip()
        word = word.lower() if any_case else word
        if word not in choices:
            quoted = [f"'{choice}'" for choice in choices]
            raise ValueError(f"expected {', '.join(quoted[:-1])} or {quoted[-1]}")
        return word

    return Option(
        name=name,
        help=help,
        type="choice",
        default=default,
        read=read,
        choices=choices,
        for_values=for_values,
        **more,
    )


def integer(
    name: str,
    help: str,  # noqa: A002
    default: int,
    *,
    ge: int | None = None,
    le: int | None = None,
    **more: Unpack[More],
) -> Option[int]:
    """Declare a whole number, from *ge* to *le*, both included."""
    read = _bounded(read_integer, ge, le)
    return Option(name=name, help=help, type="integer", default=default, read=read, **more)


def _bounded(
    read_number: Callable[[object], int], ge: int | None, le: int | None
) -> Callable[[object], int]:
    def read(value: object) -> int:
        number = read_number(value)
        if ge is not None and number < ge:
            raise ValueError(f"expected at least {ge}")
        if le is not None and number > le:
            raise ValueError(f"expected at most {le}")
        return number

    return read


def optional_integer(
    name: str,
    help: str,  # noqa: A002
    *,
    ge: int | None = None,
    le: int | None = None,
    **more: Unpack[More],
) -> Option[int | None]:
    """Declare a whole number that may be absent."""
    read = _optional(_bounded(read_integer, ge, le))
    return Option(name=name, help=help, type="integer", default=None, read=read, **more)


def boolean(
    name: str,
    help: str,  # noqa: A002
    default: bool,
    **more: Unpack[More],
) -> Option[bool]:
    """Declare true or false, in any case, as Kafka's ``ConfigDef`` reads them."""
    return Option(name=name, help=help, type="boolean", default=default, read=read_boolean, **more)


def switch(
    name: str,
    help: str,  # noqa: A002
    default: bool,
    **more: Unpack[More],
) -> Option[bool]:
    """Declare a flag of the command line; as a variable it may be ``1``, ``yes`` or ``on`` too."""
    return Option(name=name, help=help, type="switch", default=default, read=read_switch, **more)


def parsed(
    name: str,
    help: str,  # noqa: A002
    type: str,  # noqa: A002
    default: Any,
    read: Callable[[Any], T],
    **more: Unpack[More],
) -> Option[T]:
    """Declare a value of another type, by what reads it."""
    return Option(name=name, help=help, type=type, default=default, read=read, **more)


def duration(
    name: str,
    help: str,  # noqa: A002
    default: float,
    *,
    ge: float = 0,
    le: float = _DURATION_MOST_S,
    **more: Unpack[More],
) -> Option[float]:
    """Declare seconds, given as ``500ms``, ``10s``, ``5m``, ``2h``, ``1d`` or a number."""

    def read(value: object) -> float:
        seconds = read_duration(str(value))
        if not ge <= seconds <= le:
            most = "" if le == _DURATION_MOST_S else f" and at most {le:g}s"
            raise ValueError(f"expected at least {ge:g}s{most}")
        return seconds

    return Option(name=name, help=help, type="duration", default=default, read=read, **more)


def milliseconds(
    name: str,
    help: str,  # noqa: A002
    default: int,
    *,
    ge: int | None = None,
    le: int | None = None,
    **more: Unpack[More],
) -> Option[int]:
    """Declare milliseconds from *ge* to *le*, given as a number of them or as a `duration` is."""
    read = _bounded(read_milliseconds, ge, le)
    return Option(name=name, help=help, type="milliseconds", default=default, read=read, **more)


def names(
    name: str,
    help: str,  # noqa: A002
    default: tuple[str, ...] = (),
    **more: Unpack[More],
) -> Option[tuple[str, ...]]:
    """Declare a list separated by commas, blanks around each name dropped."""
    return Option(name=name, help=help, type="list", default=default, read=read_names, **more)


def check_needs(declared: Iterable[Option[Any]], given: Mapping[str, Any]) -> None:
    """Check that no option is given without those that it needs.

    Args:
        given: Values by property; None is not given.

    Raises:
        ConfigurationError: With the option that is missing as ``place["property"]``.
    """
    for option in declared:
        for other in option.needs:
            if given.get(option.name) is not None and given.get(other) is None:
                raise ConfigurationError(
                    f"{other} is not set",
                    f"{option.name} cannot be used without it",
                    "set both, or neither",
                    property=other,
                )


def _checked(check: Callable[[str], object] | None) -> Callable[[object], str]:
    def read(value: object) -> str:
        stripped = str(value).strip()
        if check is not None:
            check(stripped)
        return stripped

    return read


@dataclass(frozen=True, slots=True)
class Unsupported:
    """One property.

    Attributes:
        name: The property; a converter's stands without its prefix, as in
            `kbackup.options.Option`.
        applies: Whether a value, without surrounding blanks, asks for what the plugin cannot do.
        why: What the property would do, and what the plugin does instead.
        do: What to do about it.
        commands: Which side would use it: see `Option`.
    """

    name: str
    applies: Callable[[str], bool] = field(repr=False)
    why: str
    do: str = "remove it"
    commands: Commands = "both"


def given(text: str) -> bool:
    """Any value but an empty one."""
    return bool(text)


def true(text: str) -> bool:
    """Any value but ``false`` and an empty one."""
    return text.lower() not in ("false", "")


def false(text: str) -> bool:
    """``false`` in any case."""
    return text.lower() == "false"


def other_than(*harmless: str) -> Callable[[str], bool]:
    """Any value but *harmless* ones."""
    return lambda text: text not in harmless
