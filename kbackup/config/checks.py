"""What a command must have, and values that are probably not what was meant."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from kbackup.config.doubts import Doubt, Value, error, warning
from kbackup.config.parsing import names_store
from kbackup.config.property import READING, SINK, STATUS
from kbackup.config.settings import PLACES
from kbackup.joda import zones


class Suspicion(NamedTuple):
    """A value that reads differently from what it does."""

    name: str
    applies: Callable[[str], bool]
    why: str
    do: str
    commands: frozenset[str] = SINK


def _swaps_month(text: str) -> bool:
    """Whether ``mm`` (minutes) stands where a month would: no hour before it."""
    bare = re.sub(r"'[^']*'", "", text)
    return "mm" in bare and "H" not in bare.partition("mm")[0]


def _outside_quotes(pattern: str) -> Callable[[str], bool]:
    return lambda text: re.search(pattern, re.sub(r"'[^']*'", "", text)) is not None


SUSPICIONS: Final = (
    Suspicion(
        "filename.offset.zero.pad.width",
        lambda text: text.strip("+0") == "" and text != "",
        "the connector dies of it at the first record; kbackup takes 1",
        "set it to 1 or more",
    ),
    Suspicion(
        "locale",
        lambda text: re.search(r"[-_]", text) is not None or text.isupper(),
        "only a bare language has an effect; with a region the root locale's names are used",
        "write en, not en-US, unless the objects that exist were written so",
    ),
    Suspicion("path.format", _swaps_month, "mm is minutes, and no hour is before it", "MM?"),
    Suspicion("path.format", _outside_quotes("DD"), "DD is the day of the year", "dd?"),
    Suspicion(
        "path.format",
        _outside_quotes("(?=.*Y)(?=.*w)"),
        "YYYY is the calendar year; the year that weeks belong to is xxxx",
        "xxxx?",
    ),
    Suspicion(
        "s3.object.tagging.key.value.pairs",
        lambda text: any(pair.count(":") != 1 for pair in text.split(",")),
        "the connector splits at every colon and keeps two pieces",
        "write k:v,k2:v2",
    ),
)


def suspicions(given: Mapping[str, Value], commands: frozenset[str]) -> Iterator[Doubt]:
    """Yield a warning for each value that is probably not what was meant."""
    for row in SUSPICIONS:
        value = given.get(row.name)
        if value is not None and value.text and row.applies(value.text) and row.commands & commands:
            yield warning("suspicious", row.name, value, row.why, row.do)
    keys = [given.get(name) for name in ("aws.access.key.id", "aws.secret.access.key")]
    alone = [value for value in keys if value is not None and value.text]
    if len(alone) == 1:
        name = "aws.access.key.id" if alone[0] is keys[0] else "aws.secret.access.key"
        why = (
            "without the other of the two it is not used; the AWS credential chain is used instead"
        )
        yield warning("suspicious", name, alone[0], why, "give both, or neither")
    url = given.get("store.url")
    for name in (found.name for found in PLACES):
        if url is not None and names_store(url.text) and name in given and given[name].text:
            yield warning("suspicious", name, given[name], f"not used: {url.shown('store.url')}")


def zones_of(given: Mapping[str, Value]) -> Iterator[Doubt]:
    """Yield what is wrong with the time zone, and that a schedule has none."""
    timezone, schedule = given.get("timezone"), given.get("rotate.schedule.interval.ms")
    if timezone is not None and timezone.text:
        try:
            zones.by_id(timezone.text)
        except ValueError as problem:
            yield error("value", "timezone", timezone, str(problem), "correct it")
    elif schedule is not None and schedule.text.isdecimal() and int(schedule.text) > 0:
        why = "rotate.schedule.interval.ms counts from its midnight, and it is not given"
        yield error("missing", "timezone", None, why, "set it, such as UTC or Europe/Berlin")


def requirements(
    command: str,
    given: Mapping[str, Value],
    *,
    is_value_view: bool,
    elsewhere: frozenset[str] = frozenset(),
) -> Iterator[Doubt]:
    """Yield what *command* needs and was not given.

    Args:
        command: As `load` takes it.
        given: What was given, erroneous values included.
        is_value_view: Whether the connectors' layout is written or read.
        elsewhere: Names that may still come from an option: a warning only.
    """
    if _has(given, "topics") and _has(given, "topics.regex"):
        why = f"topics are given too ({given['topics'].origin})"
        yield error("topics", "topics.regex", given["topics.regex"], why, "keep one of the two")
    for need in _NEEDS:
        if command not in need.commands or need.is_met(given):
            continue
        if need.name == "flush.size" and not is_value_view:
            continue
        level = warning if need.name in elsewhere else error
        yield level("missing", need.name, None, "it is not set", need.do)


def _has(given: Mapping[str, Value], *names: str) -> bool:
    return any(name in given and given[name].text != "" for name in names)


class _Need(NamedTuple):
    name: str
    is_met: Callable[[Mapping[str, Value]], bool]
    do: str
    commands: frozenset[str]


_NEEDS: Final = (
    _Need(
        "bootstrap.servers",
        lambda given: _has(given, "bootstrap.servers"),
        "name the brokers: -k HOST:PORT",
        SINK | {"restore"},
    ),
    _Need(
        "topics",
        lambda given: _has(given, "topics", "topics.regex"),
        "name topics, -t TOPIC,..., or a pattern, --topics-regex PATTERN",
        SINK,
    ),
    _Need(
        PLACES[0].name,
        lambda given: (
            _has(given, *(found.name for found in PLACES))
            or ("store.url" in given and names_store(given["store.url"].text))
        ),
        "name the bucket, -b BUCKET, or a folder, --store-url file:///FOLDER",
        SINK | READING | STATUS,
    ),
    _Need(
        "flush.size",
        lambda given: _has(given, "flush.size"),
        "set it: the number of records after which a file is cut (format.class chooses the "
        "connectors' layout, which has no default)",
        SINK,
    ),
)
