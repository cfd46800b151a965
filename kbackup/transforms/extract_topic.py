"""``ExtractTopic``: a record's key, value, one of their fields, or a header names its topic.

Source: the reference of Confluent's ``io.confluent.connect.transforms.ExtractTopic``.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.columns import Bad
from kbackup.connect.schema import Type
from kbackup.errors import ConfigurationError
from kbackup.options import Option, boolean, text, words
from kbackup.transforms import headers, schemaless
from kbackup.transforms.data import Data, Records
from kbackup.transforms.sides import no_fields

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

    class_names: ClassVar[tuple[str, ...]] = ("ExtractTopic",)
    java_package: ClassVar[str] = "io.confluent.connect.transforms"
    sides: ClassVar[tuple[str, ...]] = ("key", "value", "header")
    reads: ClassVar[tuple[str, ...]] = ()
    chooses_topics: ClassVar[bool] = True
    reads_only: ClassVar[bool] = True
    options: ClassVar[tuple[Option[Any], ...]] = (FIELD, FORMAT, SKIP)

    def configure(self, options: Mapping[str, Any], side: str) -> None:
        """Take the field.

        Raises:
            ConfigurationError: If there is no header, or a path is not one of names.
        """
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
            return _texts(headers.last(records.headers, self._field), "its header")
        data = records.side(self._side)
        if data.schema is None:
            return self._of_json(schemaless.parsed(data.values))
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
                    wrong[row] = no_fields(self._side, schemaless.kind(each))
                each = each.get(name) if isinstance(each, dict) else None
            if each is not None and not isinstance(each, str):
                wrong[row] = f"the topic's name is not text: it is {schemaless.kind(each)}"
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
    """Return the names in a JSON path.

    Raises:
        ConfigurationError: If it has anything else in it.
    """
    found, at = [], 1
    while path.startswith("$") and at < len(path):
        step = _STEP.match(path, at)
        if step is None:
            break
        found.append(next(each for each in step.groups() if each is not None))
        at = step.end()
    if not found or at < len(path):
        raise ConfigurationError(
            f"field={path} cannot be used",
            "kbackup reads JSON paths of names only, such as $.a.b or $['a']['b']",
            "write it that way", property=FIELD.name,
        )  # fmt: skip
    return found
