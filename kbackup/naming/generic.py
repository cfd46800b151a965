r"""Parse keys that no sink made: regular expressions over whole keys say which topic each is of.

An entry of ``topic.regex.list`` gives the topic, then the pattern::

    clicks:logs/clicks/.*\.json                                   everything to one topic
    $1:raw/([a-z]+)/.*                                            the topic is part of the key
    $1:(.+)-(?<partition>\d+)-(?<offset>\d+)\.gz                  another sink's names

A group named ``partition`` gives the Kafka partition, one named ``offset`` the offset of the first
record; without them every object belongs to partition 0, and its records have no offsets.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar, Final

from kbackup.errors import ConfigurationError, IllegalTopicNameError, ObjectKeyError
from kbackup.java.regex import JavaPattern, PatternError, translate
from kbackup.naming import NOT_MATCHED, Layout, ObjectKey, Place, View, check_numbers, check_topic
from kbackup.naming.renaming import parts_of

_NEXT: Final = re.compile(r",(?=\s*[\w.$\{\}-]{1,249}:)", re.ASCII)
"""A comma that begins another entry; other commas are part of a pattern."""


@dataclass(frozen=True, slots=True)
class Expression:
    """One entry; plain data, so it crosses processes.

    Attributes:
        topic: The topic's name, with ``$1`` or ``${name}`` for groups of the pattern.
        regex: Java regular expression that a whole key must match.

    Raises:
        ValueError: If Java refuses one of the two, or the regular expression uses something that
            is not supported.
    """

    topic: str
    regex: str

    def __post_init__(self) -> None:
        _compiled(self.topic, self.regex)

    def __str__(self) -> str:
        return f"{self.topic}:{self.regex}"

    def place(self, key: str) -> Place | None:
        """Return where the object *key* belongs; None if the pattern does not match.

        Raises:
            ConfigurationError: If the pattern takes too long.
        """
        java, topic = _compiled(self.topic, self.regex)
        try:
            found = java.whole(key)
        except TimeoutError as error:
            raise ConfigurationError(
                f"cannot match {key!r} with {self.regex!r} of topic.regex.list",
                f"it took {error}: the pattern backtracks too much",
                "remove a repetition inside a repetition, such as (a+)+ for a+",
            ) from None
        if found is None:
            return None
        numbers = [found[java.names[name]] if name in java.names else "0" for name in _NUMBERS]
        if not all(re.fullmatch(r"\d{1,99}", text or "", re.ASCII) for text in numbers):
            return None
        partition, offset = map(int, numbers)
        name = "".join(part if isinstance(part, str) else found[part] or "" for part in topic)
        return Place(name, partition, offset)


_NUMBERS: Final = ("partition", "offset")
"""Groups that are numbers; an object whose key has no digits there matches nothing."""


def read(text: str) -> tuple[Expression, ...]:
    """Return the entries of ``topic.regex.list``; ``ValueError`` if one is not TOPIC:PATTERN."""
    found = []
    for entry in filter(None, map(str.strip, _NEXT.split(text.rstrip(", ")))):
        topic, colon, pattern = entry.partition(":")
        if not (topic and colon and pattern):
            raise ValueError(f"expected TOPIC:PATTERN, separated by commas, not {entry!r}")
        found.append(Expression(topic.strip(), pattern.strip()))
    return tuple(found)


def place(expressions: Iterable[Expression], key: str) -> Place | None:
    """Return where *key* belongs by the first expression that matches it, None for nowhere."""
    found = (expression.place(key) for expression in expressions)
    return next((one for one in found if one is not None), None)


@lru_cache(maxsize=64)
def _compiled(topic: str, regex: str) -> tuple[JavaPattern, tuple[str | int, ...]]:
    try:
        java = translate(regex)
        return java, tuple(parts_of(topic, java))
    except PatternError as error:
        raise ValueError(f"{topic}:{regex}: {error}") from None


@dataclass(frozen=True, slots=True)
class GenericLayout(Layout):
    """Objects of any name, which are only read: values, each a directory of its own.

    Attributes:
        expressions: What gives an object its topic.
    """

    has_folders: ClassVar[bool] = False
    is_generic: ClassVar[bool] = True

    expressions: tuple[Expression, ...] = field(kw_only=True)

    def parse(self, key: str) -> ObjectKey:
        """Return where *key* belongs by the expressions; its directory is its name.

        It is an `ObjectKeyError` if none of them matches it.
        """
        is_ours = key.startswith(self.records_prefix()) or key.endswith(self.directory_delim)
        found = None if is_ours else place(self.expressions, key)
        if found is None:
            raise ObjectKeyError(key, NOT_MATCHED)
        check_numbers(key, found.partition, found.offset)
        try:
            topic = check_topic(found.topic)
        except IllegalTopicNameError as error:
            raise ObjectKeyError(key, error.what) from None
        name = key.rpartition(self.directory_delim)[2]
        extension = "".join(name.partition(".")[1:])
        return ObjectKey(topic, found.partition, found.offset, key, extension, View.VALUE)
