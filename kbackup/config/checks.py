"""Check that a command has what it requires, and warn of values that are probably mistakes."""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, NamedTuple

from kbackup.config.issues import ConfigIssue, Given, Value, error, warning
from kbackup.config.property import KEYS, READING, SINK, STATUS, names_store
from kbackup.config.settings import BY_NAME, PLACES
from kbackup.errors import IllegalTopicNameError
from kbackup.java import joda
from kbackup.naming import check_topic
from kbackup.naming.generic import read as read_expressions
from kbackup.options import Suspicion, read_milliseconds, read_names

_EXPRESSIONS: Final = "topic.regex.list"
_NOT_GENERIC: Final = {
    "store.kafka.keys": "there are no objects of keys",
    "store.kafka.headers": "there are no objects of headers",
}
_UNORDERED: Final = dict.fromkeys(("from.offset", "to.offset"), "records have no offsets")
_UNTIMED: Final = dict.fromkeys(
    ("from.time", "to.time"), "records have no times without record.fields=timestamp=FIELD"
)
_OF_ROWS: Final = dict.fromkeys(
    ("record.fields", "file.metadata.headers.enable"),
    "format.class reads full records, which have all of their parts",
)
_OFFSET: Final = "(?<offset>"
_PARTS: Final = frozenset({"key", "value", "timestamp", "headers"})
_PARSE_ERRORS: Final = "parse.error.topic.prefix"
_COPIES: Final = "errors.deadletterqueue.topic.replication.factor"
_DEAD_LETTERS: Final = "errors.deadletterqueue.topic.name"

_OWN: Final = {
    "filename.offset.zero.pad.width": Suspicion(
        lambda text: text.strip("+0") == "",
        "the connector fails at the first record; kbackup uses 1",
        "set it to 1 or more",
    ),
}
"""The sink's properties that no plugin declares, by name."""


def suspicions(
    given: Given, commands: frozenset[str], idle: Collection[str] = ()
) -> Iterator[ConfigIssue]:
    """Yield a warning for each value that is probably a mistake, of names that are not *idle*."""
    for name, value in given.items():
        for row in _about(name, commands) if value.text and name not in idle else ():
            if row.applies(value.text):
                yield given.warning("suspicious", name, row.why, row.do)
    url = given.get("store.url")
    for name in (found.name for found in PLACES):
        if url is not None and names_store(url.text) and name in given and given[name].text:
            why = f"without effect beside {url.shown('store.url')}"
            yield given.warning("suspicious", name, why)


def _about(name: str, commands: frozenset[str]) -> tuple[Suspicion, ...]:
    if name in _OWN:
        return (_OWN[name],) if commands & SINK else ()
    found = BY_NAME.get(name)
    return () if found is None or not found.commands & commands else found.suspicions


def logins(given: Given, clients: Mapping[str, Mapping[str, str]]) -> Iterator[ConfigIssue]:
    """Yield a warning where the consumer alone signs in, as in Connect: here others connect too."""
    name = "consumer.override.security.protocol"
    if name in given and "security.protocol" not in clients["admin"]:
        why = "it reaches the consumer alone; the other clients connect without it"
        do = "write security.protocol, sasl.* and ssl.* without consumer.override."
        yield given.warning("suspicious", name, why, do)


def header_text(given: Given) -> Iterator[ConfigIssue]:
    """Yield what is stored of headers if a connector's file left their converter to its worker."""
    if "connector.class" not in given or not given.is_true("store.kafka.headers"):
        return
    if _has(given, "header.converter"):
        return
    why = (
        "not given, so the worker's converter was used; headers are stored as the text they are, "
        "while Connect's own SimpleHeaderConverter writes 1.50 as 1.5 and 007 as 7"
    )
    do = "set header.converter to the worker's converter"
    yield warning("assumed", "header.converter", None, why, do)


def dead_letters(given: Given) -> Iterator[ConfigIssue]:
    """Yield errors and surprising effects of the settings for bad records."""
    tolerates = given.text("errors.tolerance").lower() == "all"
    name = given.text(_DEAD_LETTERS)
    if name and not tolerates:
        why = (
            "a bad record stops its partition (errors.tolerance=none), so nothing is ever "
            "written there"
        )
        yield given.warning("no_effect", _DEAD_LETTERS, why, "set errors.tolerance=all")
    if tolerates and not name:
        why = "bad records are left out, counted and reported, but not kept anywhere"
        do = f"set {_DEAD_LETTERS} to keep them"
        yield given.warning("suspicious", "errors.tolerance", why, do)
    if "topics" in given and name in read_names(given["topics"].value):
        why = "it is among the topics that are backed up, and would feed itself"
        yield given.error("combination", _DEAD_LETTERS, why, "choose another topic")
    if name:
        try:
            check_topic(name)
        except IllegalTopicNameError as problem:
            yield given.error("value", _DEAD_LETTERS, problem.why, "choose another name")
    if given.text(_COPIES) == "0":
        why, do = (
            "a topic has one replica at least",
            "set 1 or more, or -1 for the cluster's default",
        )
        yield given.error("value", _COPIES, why, do)


def parse_errors(given: Given) -> Iterator[ConfigIssue]:
    """Yield what is wrong with the topic for what a restore cannot read."""
    if not given.text(_PARSE_ERRORS):
        return
    prefix = given[_PARSE_ERRORS]
    try:
        check_topic(f"{prefix.text}-{given.text('name') or 'kbackup'}")
    except IllegalTopicNameError as problem:
        why = f"{problem.what}: {problem.why}"
        yield given.error("value", _PARSE_ERRORS, why, "choose another prefix, or another name")
    if given.text("behavior.on.error").lower() in ("", "fail"):
        why = "what cannot be read stops the restore, so nothing is ever written there"
        yield given.warning("no_effect", _PARSE_ERRORS, why, "set behavior.on.error=log")


def followed(given: Given) -> Iterator[ConfigIssue]:
    """Yield what is wrong with what goes with --follow alone, or does not go with it."""
    follows = given.is_true("follow")
    if given.text("follow.groups") and not follows:
        groups, why = given["follow.groups"], "a restore that ends sets no groups"
        do = "add --follow, or run kbackup restore groups afterwards"
        if groups.origin.kind == "option":
            yield given.error("combination", "follow.groups", why, do)
        else:  # a file serves the standby and a restore by hand
            yield given.warning("no_effect", "follow.groups", why, do)
    if given.text("as.of") and follows:
        why = "--follow goes on with what is stored later, and nothing of that is from before"
        yield given.error("combination", "as.of", why, "leave out one of the two")


def generic(given: Given, mode: str, *, holds_records: bool) -> Iterator[ConfigIssue]:
    """Yield what does not go with objects of any name, and what goes with nothing else."""
    if mode != "GENERIC":
        if holds_records:
            why = "only mode=GENERIC reads it"
            do = "set mode=GENERIC and topic.regex.list"
            yield given.error("combination", "format.class", why, do)
        for name in (_EXPRESSIONS, "file.metadata.headers.enable", "record.fields"):
            if given.text(name).lower() not in ("", "false"):
                why = "it is for objects of any name, and mode is not GENERIC"
                yield given.error("combination", name, why, "set mode=GENERIC, or remove it")
        return
    if not given.text(_EXPRESSIONS):
        why = "mode=GENERIC needs it to know which objects belong to which topic"
        do = r"set it, such as clicks:logs/clicks/.*\.json"
        yield given.error("missing", _EXPRESSIONS, why, do)
    fields = given.text("record.fields")
    parts = {pair.partition("=")[0].strip() for pair in fields.split(",")}
    if fields and not {"value"} <= parts <= _PARTS:
        why = "expected value=FIELD, and FIELD of key, timestamp and headers where a row has them"
        yield given.error("value", "record.fields", why, "correct it")
    refused = _NOT_GENERIC | ({} if "timestamp" in parts else _UNTIMED) | _UNORDERED
    do = "remove it, or set mode=RESTORE_BACKUP for objects that a sink has named"
    if holds_records:
        refused, do = _NOT_GENERIC | _OF_ROWS, "remove it"
        if _EXPRESSIONS in given:
            yield from _without_offsets(given)
    for name, why in refused.items():
        if given.text(name).lower() not in ("", "false"):
            yield given.error("combination", name, f"with mode=GENERIC {why}", do)


def _without_offsets(given: Given) -> Iterator[ConfigIssue]:
    """Yield an error if objects of full records cannot be put in order by their names."""
    try:
        entries = read_expressions(given.text(_EXPRESSIONS))
    except ValueError:
        return  # which is reported as what it is
    if any(_OFFSET not in entry.regex for entry in entries):
        why = "full records are restored in the order of their offsets, and a pattern has none"
        do = "add the group (?<offset>\\d+) where names have the offset of the first record"
        yield given.error("value", _EXPRESSIONS, why, do)


def is_positive(value: Value) -> bool:
    """Whether a value is milliseconds, and more than none of them."""
    try:
        return read_milliseconds(value.value) > 0
    except ValueError:
        return False  # which is reported as what it is


def zones_of(given: Given) -> Iterator[ConfigIssue]:
    """Yield errors of the time zone, and a schedule without one."""
    schedule = given.get("rotate.schedule.interval.ms")
    if zone := given.text("timezone"):
        try:
            joda.zone_by_id(zone)
        except ValueError as problem:
            yield given.error("value", "timezone", str(problem), "correct it")
    elif schedule is not None and is_positive(schedule):
        why = "rotate.schedule.interval.ms counts from its midnight, and it is not set"
        yield error("missing", "timezone", None, why, "set it, such as UTC or Europe/Berlin")


NARROWING: Final = (
    "topics", "topics.regex", "topics.exclude", "partitions",
    "from.time", "to.time", "as.of", "from.offset", "to.offset",
    "rename", "rename.prefix", "rename.regex", "groups",
)  # fmt: skip
"""Options that select the records of a command, or where they go."""


def blanks(given: Given) -> Iterator[ConfigIssue]:
    """Yield an error for each option that should do something and is empty.

    It comes from an unset shell variable: ``-t "$TOPIC"`` would restore all topics, and
    ``--encryption-recipients "$KEYS"`` store what anybody can read.  In files and the environment,
    an empty value means "not set".
    """
    for name, value in given.items():
        if _is_blank(name, value):
            do = "give it a value, or leave the option out"
            yield given.error("value", name, "it is empty", do)


def _is_blank(name: str, value: Value) -> bool:
    if value.origin.kind != "option" or value.text.strip(", "):
        return False
    is_file = name in BY_NAME and BY_NAME[name].type == "file"
    return is_file or name in (*NARROWING, "metrics.listen") or name.startswith("encryption.")


def requirements(
    command: str,
    given: Given,
    *,
    cuts_by_number: bool,
    elsewhere: frozenset[str] = frozenset(),
) -> Iterator[ConfigIssue]:
    """Yield what *command* requires and was not given.

    Args:
        cuts_by_number: Whether the layout is the connectors', whose files have no other limit.
        elsewhere: Names that may still come from an option: a warning only.
    """
    if _has(given, "topics") and _has(given, "topics.regex"):
        why = f"topics are given too ({given['topics'].origin})"
        yield given.error("topics", "topics.regex", why, "keep one of the two")
    for need in _NEEDS:
        if command not in need.commands or need.is_met(given):
            continue
        if need.name == "flush.size" and not cuts_by_number:
            continue
        value = given.get(need.name)
        if value is not None and _is_blank(need.name, value):
            continue
        level = warning if need.name in elsewhere else error
        why = "it is not set" if value is None else "it is empty"
        yield level("missing", need.name, value, why, need.do)


def _has(given: Given, *names: str) -> bool:
    return any(given.text(name) for name in names)


class _Need(NamedTuple):
    name: str
    is_met: Callable[[Given], bool]
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
        lambda given: _has(given, "topics", "topics.regex", "topics.exclude"),
        "name topics, -t TOPIC,..., or a pattern, --topics-regex PATTERN",
        SINK,
    ),
    _Need(
        PLACES[0].name,
        lambda given: (
            _has(given, *(found.name for found in PLACES)) or names_store(given.text("store.url"))
        ),
        "name the bucket, -b BUCKET, or a folder, --store-url file:///FOLDER",
        SINK | READING | STATUS | KEYS | {"ddl"},
    ),
    _Need(
        "flush.size",
        lambda given: "flush.size" in given,  # if it is empty, it is no number
        "set it: the number of records after which a file is closed (format.class chooses the "
        "connectors' layout, which has no default)",
        SINK,
    ),
)
