"""Choose topics, and rename them by the rules of Connect's ``RegexRouter``.

A name that the regular expression matches as a whole gets the replacement put in for the *first*
match that a new search from the start finds, which need not be the whole name: ``(.*?)`` matches
``orders`` whole, then finds the empty text before it, and ``<$1>`` makes ``<>orders`` of it.

Source: ``org.apache.kafka.connect.transforms.RegexRouter`` (kafka 3.5) and
``java.util.regex.Matcher.replaceFirst`` of OpenJDK 17.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, NamedTuple

from kbackup.errors import ConfigurationError, counted, some
from kbackup.java.regex import IN_DOUBT, JavaPattern, PatternError, translate
from kbackup.records import TopicPartition

_PART: Final = re.compile(
    r"(?P<text>[^\\$]+)|\\(?P<escaped>.)"
    r"|\$\{(?P<name>[A-Za-z][A-Za-z0-9]*)\}|\$(?P<digits>[0-9]+)",
    re.DOTALL,
)
_NO_GROUP: Final = "the '$' at character {} begins no reference to a group"
_INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "_schemas"})
_OPTIONS: Final = "(--rename-regex, --rename, or transforms.*.regex and .replacement)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rename:
    """One RegexRouter step; plain data, so it crosses processes.

    Attributes:
        regex: Java regular expression for the whole name.
        replacement: What takes the place of the first match: ``$1`` or ``${name}`` for a group,
            a backslash before a character that stands for itself.

    Raises:
        ConfigurationError: If Java refuses one of the two, or the regular expression uses
            something that is not supported.
    """

    regex: str = ".*"
    replacement: str

    def __post_init__(self) -> None:
        _step(self.regex, self.replacement)

    def __call__(self, topic: str) -> str:
        """Return the new name, or *topic* itself if the whole of it does not match.

        Raises:
            ConfigurationError: If the pattern takes too long.
        """
        step = _step(self.regex, self.replacement)
        try:
            if not step.pattern.matches(topic):
                return topic
            found = step.pattern.find(topic)
        except TimeoutError as error:
            raise ConfigurationError(
                f"cannot rename {topic!r} by {self.regex!r} {_OPTIONS}",
                why=f"matching took {error}: the pattern backtracks too much",
                do="remove a repetition inside a repetition, such as (a+)+ for a+",
            ) from None
        new = "".join(
            part if isinstance(part, str) else found[part] or "" for part in step.replacement
        )
        return topic[: found.start()] + new + topic[found.end() :]


def rename(topic: str, steps: Sequence[Rename]) -> str:
    """Return *topic* after all *steps*, each applied to what the one before it returned."""
    for step in steps:
        topic = step(topic)
    return topic


class _Step(NamedTuple):
    pattern: JavaPattern
    replacement: tuple[str | int, ...]  # text, and numbers of groups


@lru_cache(maxsize=64)
def _step(pattern: str, replacement: str) -> _Step:
    try:
        java = translate(pattern)
    except PatternError as error:
        raise ConfigurationError(
            f"cannot rename by the pattern {pattern!r} {_OPTIONS}",
            why=str(error),
            do="write it another way; docs/reference/configuration.md lists what is accepted",
        ) from None
    try:
        parts = tuple(parts_of(replacement, java))
    except PatternError as error:
        raise ConfigurationError(
            f"cannot rename to {replacement!r} {_OPTIONS}",
            why=str(error),
            do="write $1 or ${name} for a group of the pattern, \\$ for a dollar sign",
        ) from None
    return _Step(java, parts)


def parts_of(replacement: str, pattern: JavaPattern) -> Iterator[str | int]:
    """Yield the text and the group numbers of *replacement*, as ``appendReplacement`` reads it.

    Raises:
        PatternError: If *replacement* refers to a group that *pattern* does not have.
    """
    at = 0
    while at < len(replacement):
        part = _PART.match(replacement, at)
        if part is None:
            raise PatternError(
                "it ends in a backslash" if replacement[at] == "\\" else _NO_GROUP.format(at)
            )
        at = part.end()
        if (text := part["text"] or part["escaped"]) is not None:
            yield text
            continue
        if (name := part["name"]) is not None:
            number = pattern.names.get(name)
            if number is None:
                raise PatternError(f"the pattern has no group named {name!r}")
        else:
            number, used = _number(part["digits"], pattern.group_count)
            at = part.start("digits") + used
        if number in pattern.doubtful:
            raise PatternError(f"it refers to group {number}: {IN_DOUBT}")
        yield number


def _number(digits: str, group_count: int) -> tuple[int, int]:
    """Return the number of the group that *digits* begin with, and how many of them it takes."""
    number = int(digits[0])
    if number > group_count:
        groups = counted(group_count, "group")
        raise PatternError(f"the pattern has {groups}, and none with number {number}")
    for used, digit in enumerate(digits[1:], start=1):
        if (longer := number * 10 + int(digit)) > group_count:
            return number, used
        number = longer
    return number, len(digits)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Topics that are there and are not taken.

    Attributes:
        excluded: Those that match ``topics.exclude``.
        internal: Those of Kafka, or of a service beside it, which have to be named.
        not_yet: Those of which nothing had been backed up by the time that is asked for.
        drills: Those of a drill, which it will delete, whoever named them.
    """

    excluded: Sequence[str] = ()
    internal: Sequence[str] = ()
    not_yet: Sequence[str] = ()
    drills: Sequence[str] = ()


NOTHING_LEFT: Final = LeftOut()
"""All are taken."""

EXCLUDES_NOTHING: Final = "excludes_nothing"
"""The code of a warning: `TopicFilter.idle_exclusion`."""


@dataclass(frozen=True, slots=True)
class TopicFilter:
    """Which topics and partitions a command is about.

    Attributes:
        names: Topics; all where there are none.
        pattern: A Java regular expression for topics, where there are no *names*.
        partitions: Only these of each topic; None for all.
        excluded: A Java regular expression for topics to leave out, where there are no *names*.
    """

    names: Collection[str] = ()
    pattern: str | None = None
    partitions: Collection[int] | None = None
    excluded: str | None = None

    def topics(self, available: Collection[str]) -> list[str]:
        """Return the topics to work on, sorted.

        Args:
            available: The names there are.  The *names* asked for need not be among them.  What is
                not named is no internal topic.

        Raises:
            ConfigurationError: If a pattern takes too long over a name, or over all of them.
        """
        if self.names:
            return sorted(set(self.names))
        left = self.left_out(available)
        names = sorted({*available}.difference(left.internal, left.excluded))
        return names if self.pattern is None else matching(names, self.pattern, "topics.regex")

    def left_out(self, available: Collection[str]) -> LeftOut:
        """Return which of the topics there are is not taken, though the pattern might match it."""
        if self.names:
            return NOTHING_LEFT
        internal = sorted(filter(is_internal, available))
        if self.excluded is None:
            return LeftOut((), internal)
        others = sorted({*available}.difference(internal))
        return LeftOut(matching(others, self.excluded, "topics.exclude"), internal)

    def check_exclusion(self, available: Collection[str]) -> None:
        """Check that not all topics that would be taken are to be left out.

        Raises:
            ConfigurationError: If they are.
        """
        if self.excluded is None or self.names or self.topics(available):
            return
        if out := replace(self, excluded=None).topics(available):
            raise ConfigurationError(
                f"topics.exclude {self.excluded!r} leaves out every topic that there is",
                f"it matches {some(out)}",
                "correct it (--topics-exclude), or name the topics",
                property="topics.exclude",
            )

    def idle_exclusion(self, left: LeftOut) -> str | None:
        """Return what to say of a pattern that leaves out nothing; None where that is not so."""
        if self.excluded is None or self.names or left.excluded:
            return None
        return f"topics.exclude {self.excluded!r} matches no topic: nothing is left out by it"

    @property
    def words(self) -> list[str]:
        """What stands for the topics in locks and run records: the names, or the patterns."""
        if self.names:
            return [*self.names]
        pattern = [] if self.pattern is None else [self.pattern]
        return pattern if self.excluded is None else [*pattern, f"except {self.excluded}"]

    def has(self, partition: int) -> bool:
        """Whether a partition is one of those of its topic."""
        return self.partitions is None or partition in self.partitions


def matching(names: Sequence[str], pattern: str, said_by: str) -> list[str]:
    """Return those of *names* that a Java regular expression matches as a whole.

    Raises:
        ConfigurationError: If it takes too long, naming the property that is *said_by*.
    """
    wanted = translate(pattern)
    try:
        return [name for name in names if wanted.matches(name)]
    except TimeoutError as error:
        raise ConfigurationError(
            f"{said_by} {pattern!r} takes longer than it may",
            f"it took {error}: nested repetitions multiply",
            "write a simpler expression, or name the topics",
        ) from error


ALL: Final = TopicFilter()
"""All topics, and all partitions of each."""


def is_internal(topic: str) -> bool:
    """Whether *topic* belongs to Kafka or to a service beside it."""
    return topic.startswith("__") or topic in _INTERNAL_TOPICS


@dataclass(frozen=True, slots=True)
class Routes:
    """Under which names a sink stores its topics: ``RegexRouter`` steps in order; plain data."""

    steps: tuple[Rename, ...] = ()

    def topic(self, name: str) -> str:
        """Return the name under which the topic *name* is stored."""
        return rename(name, self.steps)

    def __call__(self, where: TopicPartition) -> TopicPartition:
        """Return the name under which a partition is stored; its number stays."""
        return TopicPartition(self.topic(where.topic), where.partition) if self.steps else where


UNROUTED: Final = Routes()
"""Topics keep their names."""
