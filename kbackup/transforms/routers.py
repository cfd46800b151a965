"""Transforms that choose the topic: ``TimestampRouter``, ``RegexRouter``, ``ExtractTopic``.

Source: Apache Kafka 4.1, ``org.apache.kafka.connect.transforms``; the reference of Confluent's
``io.confluent.connect.transforms.ExtractTopic``.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.connect.schema import Type
from kbackup.errors import ConfigurationError
from kbackup.java.simple_date_format import FIRST_MS, LAST_MS, SimpleDateFormat
from kbackup.naming.renaming import Rename
from kbackup.options import boolean, text, words
from kbackup.records import Bad
from kbackup.transforms import Traits, of_kafka
from kbackup.transforms.data import Data, Records, json_kind, no_fields, parse_json
from kbackup.transforms.headers import last_header

TOPIC_FORMAT: Final = text(
    "topic.format",
    "The topic's new name: ${topic} stands for the present one, ${timestamp} for the time.",
    "${topic}-${timestamp}",
    is_literal=True,
)
TIMESTAMP_FORMAT: Final = text(
    "timestamp.format", "SimpleDateFormat pattern of the time, in UTC.", "yyyyMMdd"
)


class TimestampRouter:
    """Names the topic by the record's timestamp, in a restore."""

    traits: ClassVar = of_kafka(
        "TimestampRouter", TOPIC_FORMAT, TIMESTAMP_FORMAT, sides=(), chooses_topics=True
    )

    def configure(self, options: Mapping[str, Any], side: str) -> None:  # noqa: ARG002
        """Take the formats."""
        self._topic = TOPIC_FORMAT.of(options)
        pattern = TIMESTAMP_FORMAT.of(options)
        try:
            self._time = SimpleDateFormat(pattern)
        except ValueError as error:
            raise TIMESTAMP_FORMAT.refusal(str(error), value=pattern) from error

    def apply(self, records: Records) -> Records:
        """Return the records with their new topics; those without a timestamp are refused."""
        times = records.timestamps
        records = records.refuse(_untimely(times))
        times = self._time.texts(records.timestamps).dictionary_encode()
        texts, names = times.dictionary.to_pylist(), records.topics.dictionary.to_pylist()
        count = pa.scalar(len(names), pa.int64())
        pairs = pc.add(
            pc.multiply(times.indices.cast(pa.int64()), count),
            records.topics.indices.cast(pa.int64()),
        ).dictionary_encode()  # a name is made once for each pair of time and topic
        found = [
            self._named(names[pair % len(names)], texts[pair // len(names)])
            for pair in pairs.dictionary.to_pylist()
        ]
        topics = pa.DictionaryArray.from_arrays(pairs.indices, pa.array(found, pa.string()))
        return replace(records, topics=topics)

    def _named(self, topic: str, time: str) -> str:
        return self._topic.replace("${topic}", topic).replace("${timestamp}", time)


def _untimely(times: pa.Int64Array) -> list[Bad]:
    """Return the rows whose timestamp cannot be part of a name."""
    out = pc.fill_null(pc.or_(pc.less(times, FIRST_MS), pc.greater(times, LAST_MS)), True)
    rows = pc.indices_nonzero(out).to_pylist()
    known = times.take(pa.array(rows, pa.int64())).to_pylist()
    why = "its timestamp is before 15 October 1582 or after the year 9999"
    return [
        Bad(row, "it has no timestamp" if time is None else why)
        for row, time in zip(rows, known, strict=True)
    ]


REGEX: Final = text("regex", "Java regular expression for the whole name.", is_required=True)
REPLACEMENT: Final = text(
    "replacement", "What replaces the match: $1 or ${name} for a group.", is_required=True
)


class RegexRouter:
    """Renames topics that match: what a restore writes to, or a sink stores them as."""

    traits: ClassVar = of_kafka("RegexRouter", REGEX, REPLACEMENT, sides=())

    def configure(self, options: Mapping[str, Any], side: str) -> None:  # noqa: ARG002
        """Take pattern and replacement."""
        self._rename = Rename(regex=REGEX.of(options), replacement=REPLACEMENT.of(options))

    def apply(self, records: Records) -> Records:
        """Return the records with their new topics."""
        names = [self._rename(name) for name in records.topics.dictionary.to_pylist()]
        indices = records.topics.indices
        topics = pa.DictionaryArray.from_arrays(indices, pa.array(names, pa.string()))
        return replace(records, topics=topics)


FIELD: Final = text(
    "field",
    "The field, or the header, with the topic's name; without it the whole key or value.",
    is_literal=True,
)
FORMAT: Final = words(
    "field.format",
    "PLAIN: the name of a field; JSON_PATH: a path of names, such as $.a.b or $['a']['b'].",
    ("PLAIN", "JSON_PATH"), "PLAIN", any_case=False,
)  # fmt: skip
SKIP: Final = boolean(
    "skip.missing.or.null",
    "Leave the topic of a record as it is if the name is missing or null, instead of refusing it.",
    False,
)

_STEP: Final = re.compile(r"\.([^.\[\]*()?@'\"]+)|\[\s*(?:'([^']*)'|\"([^\"]*)\")\s*\]")


class ExtractTopic:
    """Names the topic by the key, the value, one of their fields, or a header, in a restore."""

    traits: ClassVar = Traits(
        class_names=("ExtractTopic",),
        java_package="io.confluent.connect.transforms",
        sides=("key", "value", "header"),
        chooses_topics=True,
        reads_only=True,
        options=(FIELD, FORMAT, SKIP),
    )

    def configure(self, options: Mapping[str, Any], side: str) -> None:
        """Take the field."""
        self._side, self._skips = side, SKIP.of(options)
        field, self._is_path = FIELD.of(options), FORMAT.of(options) == "JSON_PATH"
        if side == "header" and (not field or self._is_path):
            why = "a header has no path" if field else "it has to name a header"
            raise ConfigurationError(
                f"ExtractTopic$Header cannot be used with field={field!r}", why,
                "set field to the header's name", property=FIELD.name,
            )  # fmt: skip
        self._field = field
        self._path = _names(field) if self._is_path else [field] if field else []

    def apply(self, records: Records) -> Records:
        """Return the records with their new topics; those without a name are refused or stay."""
        names, wrong = self._found(records)
        if not self._skips:
            lacks = {row: self._lack() for row in pc.indices_nonzero(names.is_null()).to_pylist()}
            wrong = lacks | wrong
        now = pc.coalesce(names, records.topics.cast(pa.string()))
        renamed = replace(records, topics=now.dictionary_encode())
        return renamed.refuse(Bad(row, why) for row, why in wrong.items())

    def _lack(self) -> str:
        if self._side == "header":
            return f"it has no header {self._field!r}, or a null one"
        if not self._path:
            return f"its {self._side} is null"
        return f"its {self._side} has no field {self._field!r}, or a null one"

    def _found(self, records: Records) -> tuple[pa.StringArray, dict[int, str]]:
        """Return the name of each record, null where there is none, and what is no name."""
        if self._side == "header":
            return _texts(last_header(records.headers, self._field), "its header")
        data = records.side(self._side)
        if data.schema is None:
            return self._of_json(parse_json(data.values))
        return self._of_structs(data)

    def _of_structs(self, data: Data) -> tuple[pa.StringArray, dict[int, str]]:
        nothing = pa.nulls(len(data.values), pa.string())
        for name in self._path:
            assert data.schema is not None  # noqa: S101  (the caller sees to it)
            if not data.is_struct:
                why = no_fields(self._side, f"of type {data.schema.type}")
                return nothing, dict.fromkeys(_valid(data.values), why)
            fields = dict(data.schema.fields)
            if name not in fields:
                return nothing, {}
            data = Data(data.columns()[name], fields[name])
        assert data.schema is not None  # noqa: S101
        if data.schema.type is not Type.STRING:
            why = f"the topic's name is not text: it is of type {data.schema.type}"
            return nothing, dict.fromkeys(_valid(data.values), why)
        return data.values.cast(pa.string()), {}

    def _of_json(self, values: Sequence[Any]) -> tuple[pa.StringArray, dict[int, str]]:
        found: list[str | None] = []
        wrong = {}
        for row, value in enumerate(values):
            each: Any = value
            for name in self._path:
                if each is not None and not isinstance(each, dict):
                    wrong[row] = no_fields(self._side, json_kind(each))
                each = each.get(name) if isinstance(each, dict) else None
            if each is not None and not isinstance(each, str):
                wrong[row] = f"the topic's name is not text: it is {json_kind(each)}"
                each = None
            elif each is not None and not _is_encodable(each):
                wrong[row] = "the topic's name is not text: it has half a surrogate pair"
                each = None
            found.append(each)
        return pa.array(found, pa.string()), wrong


def _is_encodable(text: str) -> bool:
    """Whether *text* has UTF-8: JSON's escapes can write halves of a character, too."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _valid(values: pa.Array) -> list[int]:
    rows: list[int] = pc.indices_nonzero(values.is_valid()).to_pylist()
    return rows


def _texts(values: pa.BinaryArray, what: str) -> tuple[pa.StringArray, dict[int, str]]:
    """Return bytes as text, null where they are none."""
    try:
        return values.cast(pa.string()), {}
    except pa.ArrowInvalid:
        found: list[str | None] = []
        wrong = {}
        for row, value in enumerate(values.to_pylist()):
            try:
                found.append(None if value is None else value.decode())
            except UnicodeDecodeError:
                found.append(None)
                wrong[row] = f"{what} is not UTF-8"
        return pa.array(found, pa.string()), wrong


def _names(path: str) -> list[str]:
    """Return the names in a JSON path."""
    found, at = [], 1
    while path.startswith("$") and at < len(path):
        step = _STEP.match(path, at)
        if step is None:
            break
        found.append(next(each for each in step.groups() if each is not None))
        at = step.end()
    if not found or at < len(path):
        why = "kbackup reads JSON paths of names only, such as $.a.b or $['a']['b']"
        raise FIELD.refusal(why, "write it that way", value=path)
    return found
