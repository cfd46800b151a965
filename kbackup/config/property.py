"""One declaration each: a property, its option, its variable and its documentation.

A group of settings is a `Group` class, and a setting is a field made by `declare`; everything else
about a property follows from these two.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo

from kbackup.config.parsing import Kind
from kbackup.options import Option
from kbackup.plugins import Declared

SINK: Final = frozenset({"sink"})
RESTORE: Final = frozenset({"restore"})
READING: Final = frozenset({"restore", "topics", "verify", "peek", "query", "thaw"})
"""The commands that read a backup."""
KAFKA: Final = frozenset({"sink", "restore", "settle", "doctor"})
"""The commands that talk to a cluster."""
RUNS: Final = frozenset({"sink", "restore"})
STATUS: Final = frozenset({"status", "settle", "prune"})
"""The commands that read run records: they open no object, so they do not depend on the layout."""
SETTLING: Final = RESTORE | {"settle"}
CHOOSING: Final = SINK | READING - {"peek"} | STATUS
"""The commands that select topics and partitions by options; a peek is given one place."""
TIMED: Final = RESTORE | {"peek"}
"""The commands that choose records by time."""
SPARK: Final = RUNS | {"verify", "query"}
"""The commands that may start Spark."""
CONVERTING: Final = RUNS | {"peek", "query"}
"""The commands that look into records."""
ALL: Final = SINK | READING | STATUS | {"doctor", "config"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """What a declaration states besides type, default, bounds and help.

    Attributes:
        commands: The commands that use it: "sink", "restore", "topics", "verify", "peek",
            "query", "thaw", "status", "settle", "prune", "doctor", "config".
        short: Other spellings of its option, such as ``-k``.
        off: The option that turns it off, such as ``--once`` for ``--follow``.
        aliases: Other names that files may use.
        example: A value for the documentation.
        is_secret: Never shown, and no option: that would show in ``ps``.
        is_option: Has an option.
        is_property: May be set in a file; options about output may not.
        is_repeated: The option may be given several times.
        is_count: The option counts, as ``-vv`` does.
        is_literal: Dollar signs and brackets have a meaning in its values and are not unresolved
            placeholders.
    """

    commands: frozenset[str] = frozenset()
    short: tuple[str, ...] = ()
    off: str | None = None
    aliases: tuple[str, ...] = ()
    example: str = ""
    is_secret: bool = False
    is_option: bool = True
    is_property: bool = True
    is_repeated: bool = False
    is_count: bool = False
    is_literal: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Property(Declaration):
    """One setting as it appears on the command line, in files and in the documentation.

    Attributes:
        name: As a property, such as ``flush.size``.
        attribute: As an attribute of `Settings`, such as ``flush_size``.
        type: A word for its type, such as ``integer``, ``list`` or ``duration``.
        default: The value if nothing is given; None if there is none.
        help: One sentence.
        group: Its heading.
        choices: The allowed values, empty if any value of its type is allowed.
        plugins: The seam and the names of the plugins that declare it; empty if it is
            kbackup's own.
        option: Their declaration, None if it is kbackup's own.
        is_built_in: Whether it comes with kbackup.
    """

    name: str
    attribute: str
    type: str
    default: Any
    help: str
    group: str
    choices: tuple[str, ...] = ()
    plugins: tuple[tuple[str, str], ...] = ()
    option: Option[Any] | None = None
    is_built_in: bool = True

    @property
    def is_place(self) -> bool:
        """Whether its value locates the backup, without ``store.url``."""
        return self.option is not None and self.option.is_place

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
        option = "--" + self.name.replace(".", "-")
        off = self.off
        if off is None and self.type == "boolean":
            off = "--no-" + self.name.replace(".", "-")
        return (*self.short, option if off is None else f"{option}/{off}")

    @property
    def variable(self) -> str:
        """Its environment variable: ``KBACKUP_FLUSH_SIZE``."""
        return variable(self.name)


def variable(name: str) -> str:
    """Return the environment variable of property *name*."""
    return "KBACKUP_" + name.upper().replace(".", "_")


class Group(BaseModel):
    """Settings under one heading.

    Attributes:
        title: The heading.
        commands: The commands that use the group's settings, unless a setting names others.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
        defer_build=True,  # saves --help 30 ms
    )
    title: ClassVar[str]
    commands: ClassVar[frozenset[str]]


def declare(
    default: Any,
    help_text: str,
    *,
    commands: frozenset[str] | None = None,
    ge: int | None = None,
    le: int | None = None,
    min_length: int | None = None,
    is_secret: bool = False,
    is_option: bool = True,
    **more: Any,
) -> Any:
    """Return a field of a `Group`; *more* is what `Declaration` takes."""
    declaration = Declaration(
        commands=commands or frozenset(),
        is_secret=is_secret,
        is_option=is_option and not is_secret,
        **more,
    )
    return Field(
        default,
        description=help_text,
        repr=not (is_secret or more.get("is_repeated")),  # pairs may hold secrets
        ge=ge,
        le=le,
        min_length=min_length,
        json_schema_extra={"declaration": declaration},  # type: ignore[dict-item]
    )


def properties(group: type[Group]) -> Iterator[Property]:
    """Yield the properties that *group* declares, in its order."""
    for attribute in group.__annotations__:
        field = group.model_fields.get(attribute)
        if field is not None:
            yield _property(group, attribute, field)


def _property(group: type[Group], attribute: str, field: FieldInfo) -> Property:
    extra: Any = field.json_schema_extra
    declaration: Declaration = extra["declaration"]
    stated = {item.name: getattr(declaration, item.name) for item in fields(declaration)}
    is_literal = get_origin(field.annotation) is Literal
    return Property(
        **stated | {"commands": declaration.commands or group.commands},
        name=attribute.removesuffix("_").replace("_", "."),
        attribute=attribute,
        type=next(item.word for item in field.metadata if isinstance(item, Kind)),
        default=field.get_default(call_default_factory=True),
        help=field.description or "",
        group=group.title,
        choices=tuple(map(str, get_args(field.annotation))) if is_literal else (),
    )


_HEADINGS: Final = {"converters": "Converters"}
"""Headings of plugins' options, by seam; a store's is its name, the others are under "Layout"."""

_SINK_AND_RESTORE: Final = {
    "formats": ALL - STATUS,
    "converters": CONVERTING,
    "partitioners": RUNS,
    "extractors": SINK,
    "stores": ALL,
}
"""The commands that use an option declared for both sides, by seam."""

PREFIXES: Final = {"converters": ("key.converter.", "value.converter.")}
"""Prefixes of the names of plugins' options, by seam."""


def of_plugins(declared: Declared) -> Iterator[Property]:
    """Yield the properties of an option that plugins declare, one for each prefix of their seam."""
    option = declared.option
    both = _SINK_AND_RESTORE[declared.seam]
    commands = {"sink": both & SINK, "restore": both - SINK, "both": both}[option.commands]
    for prefix in PREFIXES.get(declared.seam, ("",)):
        name = prefix + option.name
        yield Property(
            commands=commands,
            short=option.short,
            aliases=tuple(prefix + alias for alias in option.aliases),
            example=option.example,
            is_secret=option.is_secret,
            is_option=not option.is_secret,
            is_literal=option.is_literal,
            name=name,
            attribute=re.sub(r"\W", "_", name),
            type=option.type,
            default=option.default,
            help=option.help,
            group=(
                declared.plugins[0].upper()
                if declared.seam == "stores"
                else _HEADINGS.get(declared.seam, "Layout")
            ),
            choices=option.choices,
            plugins=tuple((declared.seam, plugin) for plugin in declared.plugins),
            option=option,
            is_built_in=declared.is_built_in,
        )
