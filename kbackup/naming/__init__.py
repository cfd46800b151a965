"""Object keys: the contract between ``sink`` and ``restore``.

Owns the keys of topics' objects: other rooms have a layout build and parse them, and name only
what they keep below ``_kbackup/``.  It never asks a store.

A key is relative to the store's root.  With the default `Layout`::

    topics/orders/partition=3/orders+3+0000004200.record.zstd.parquet
    dir    topic  encoded     topic+partition+start offset, view, extension
                  partition

The layout is the Kafka Connect S3 sink's, so each tool restores what the other wrote.  The others
are classes of their own: `DatedLayout`, the block-gzip sink's, `TemplateLayout` for names by a
template, and `kbackup.naming.generic` for objects of any name, which are only read.

Sources: kafka-connect-storage-cloud 87eb7d39, ``TopicPartitionWriter.fileKeyToCommit``; the
published objects of the block-gzip sink.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from enum import StrEnum
from typing import ClassVar, Final, NamedTuple, Self

from kbackup.errors import IllegalTopicNameError, ObjectKeyError

OFFSET_WIDTH: Final = 10
"""Digits a start offset is zero-padded to; a longer offset is never cut."""

PARTITION_MAX: Final = 2**31 - 1
OFFSET_MAX: Final = 2**63 - 2
"""The highest of a record: the offset after it is a position, of 64 bits with its sign."""

TOPIC_LENGTH_MAX: Final = 249
KEY_BYTES_MAX: Final = 1024
"""Bytes of UTF-8 that S3 allows in a key."""

DIRECTORY_BYTES_MAX: Final = 512
"""Bytes of a directory that a partitioner may give: topic and name fit beside it into a key."""

RECORDS_FOLDER: Final = "_kbackup"
"""Beside ``topics.dir``: run records, gaps and locks."""

_RUN: Final = re.compile(
    r"\d{4}-\d\d-\d\dT\d{6}Z-[0-9a-f]{4}-(.+?)(?:-[0-9a-f]{8})?\.json", re.ASCII
)
"""Of a run record: of which command, and what tells two of one second apart."""

_TOPIC: Final = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,249}")


UPLOAD_DATE: Final = "<date>"
"""What stands for the directory of a dated layout where the date is not known, or not meant."""

_DATE_OR_NOT: Final = rf"\d{{4}}-\d\d-\d\d|{UPLOAD_DATE}"
INDEX_EXTENSION: Final = ".index.json"
"""In a dated layout: of the object that says where the blocks of the value file beside it are."""

_POINTER: Final = "last_chunk_index."
_PARTITION_WIDTH: Final = 5
"""Digits a partition is zero-padded to in a dated layout."""


NOT_OF_TEMPLATE: Final = "its name does not fit object.name.template"
NOT_OF_LAYOUT: Final = "its name is not of the layout that format.class and file.delim choose"
"""Why a layout with a template does not hold an object: it may have been stored under another."""

NOT_MATCHED: Final = "no expression of topic.regex.list matches it"
"""Why a generic layout does not hold an object: it was not asked for, and is not foreign."""


class View(StrEnum):
    """The part of each record a file holds; the text stands before the extension."""

    RECORD = ".record"  # ours, and the default: everything there is
    VALUE = ""  # the connectors' three, for compatibility
    KEY = ".keys"
    HEADERS = ".headers"


def check_topic(topic: str, do: str = "choose another --rename") -> str:
    """Return *topic* if Kafka allows it as a name; *do* is what to do otherwise.

    Raises:
        IllegalTopicNameError: If it is empty, longer than 249 characters, ``.`` or ``..``, or has
            a character other than ASCII letters, digits, ``.``, ``_`` and ``-``.
    """
    if _TOPIC.fullmatch(topic) is None:
        raise IllegalTopicNameError(
            f"{topic!r} is not a legal topic name",
            "Kafka allows 1 to 249 of A-Z a-z 0-9 . _ -, but not the names '.' and '..'",
            do,
            topic=topic,
        )
    return topic


def alike(names: Iterable[str], topic: str, do: str) -> IllegalTopicNameError:
    """Return the error of *topic*, whose name Kafka takes for another of *names*."""
    return IllegalTopicNameError(
        f"{' and '.join(names)} differ only by . and _",
        "Kafka does not allow both, because their metrics would have the same name",
        do,
        topic=topic,
    )


def place_of(url: str, topics_dir: str, server: str | None = None) -> str:
    """Return where a backup is, as people are told: the store's URL, ``topics.dir``, the server."""
    place = "/".join(filter(None, [url.rstrip("/"), topics_dir]))
    return place if server is None else f"{place} at {server}"


class Place(NamedTuple):
    """Where an object begins: topic, Kafka partition, and the offset of the first record."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}:{self.offset}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what `str` returns; a ``ValueError`` says that *text* is anything else."""
        match = re.fullmatch(r"([\w.-]+):(\d{1,10}):(\d{1,19})", text, re.ASCII)
        if match is None:
            raise ValueError(f"{text}: expected TOPIC:PARTITION:OFFSET")
        return cls(match[1], int(match[2]), int(match[3]))


@dataclass(frozen=True, slots=True)
class ObjectKey:
    """One object's name, in parts.

    Attributes:
        topic: Kafka topic, 1 to 249 of ``[A-Za-z0-9._-]``, not ``.`` or ``..``.
        partition: Kafka partition, 0 to PARTITION_MAX.
        start_offset: Offset of the first record in the file, inclusive, 0 to OFFSET_MAX.
            Compared as a number: as text, order breaks at 10**OFFSET_WIDTH.
        encoded_partition: The partitioner's text, delimiters and all; not empty.
        extension: The format's, dot first, such as ``.zstd.parquet``.
        view: The part of the records in this file.
    """

    topic: str
    partition: int
    start_offset: int
    encoded_partition: str
    extension: str
    view: View = View.RECORD

    def __str__(self) -> str:
        return Layout().key(self)


@dataclass(frozen=True, slots=True)
class Layout:
    """How keys are put together: the connectors' way, with a folder for each topic.

    Attributes:
        topics_dir: First part of every key, may have several segments, may be empty.
        directory_delim: Between the segments of a key.
        file_delim: Between topic, partition and offset in an object's name.
        offset_width: Least digits of the start offset.
        tombstones: Directory of the files that hold the keys of tombstones, which have no values.
        place: Where the backup is, as people are told.
        has_folders: Whether each topic has a folder of its own.
        is_dated: Whether directories are the times of the upload: a `DatedLayout`.
        is_generic: Whether expressions say which topic an object belongs to.
    """

    has_folders: ClassVar[bool] = True
    is_dated: ClassVar[bool] = False
    is_generic: ClassVar[bool] = False

    topics_dir: str = "topics"
    directory_delim: str = "/"
    file_delim: str = "+"
    offset_width: int = OFFSET_WIDTH
    tombstones: str = "tombstone"
    place: str = field(default="", kw_only=True, compare=False)
    _pattern: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "place", self.place or self.topics_dir or "the bucket")
        text = (
            re.escape(self.prefix()) + self._name_pattern() + r"(?P<extension>(?:\.[A-Za-z0-9]+)+)"
        )
        # record text, newlines too, can be in a field partition
        object.__setattr__(self, "_pattern", re.compile(text, re.ASCII | re.DOTALL))

    def _name_pattern(self) -> str:
        """Return an expression for what stands between the prefix and the extension."""
        dd = re.escape(self.directory_delim)
        stem = rf"{_topic_pattern(dd)}{dd}(?P<encoded>.+){dd}(?P=topic)"
        return rf"{stem}{self._numbers()}(?P<view>\.record|\.keys|\.headers|)"

    def _numbers(self) -> str:
        fd = re.escape(self.file_delim)
        return rf"{fd}(?P<partition>\d{{1,10}}){fd}(?P<offset>\d{{1,99}})"

    def is_main(self, parts: ObjectKey) -> bool:
        """Whether an object is what its set is known by: no sibling of a file of values."""
        if parts.view is View.KEY:
            return parts.encoded_partition == self.tombstones and self.has_folders
        return parts.view in (View.RECORD, View.VALUE)

    def prefix(self, topic: str | None = None) -> str:
        """Return what the keys of all topics, or of one, begin with; ends with the delimiter."""
        parts = [part for part in (self.topics_dir, topic if self.has_folders else None) if part]
        return "".join(part + self.directory_delim for part in parts)

    def prefixes(self, topics: Iterable[str]) -> list[str]:
        """Return what to list to find all objects of *topics*, and perhaps of others."""
        return sorted({self.prefix(topic) for topic in topics})

    def records_prefix(self) -> str:
        """Return the folder of run records, beside the last segment of ``topics.dir``."""
        parent, delim, _ = self.topics_dir.rpartition(self.directory_delim)
        return f"{parent}{delim}{RECORDS_FOLDER}/"

    def runs_prefix(self) -> str:
        """Return what the keys of run records begin with."""
        return f"{self.records_prefix()}runs/"

    def run_key(self, run: str, command: str, apart: str = "") -> str:
        """Return the key of the record of a run, whose id begins with its time, of *command*.

        Eight hexadecimal digits, *apart*, tell two of one name apart; empty without another.
        """
        name = "-".join(filter(None, (run.replace(":", ""), command.replace(" ", "-"), apart)))
        return f"{self.runs_prefix()}{name}.json"

    def is_run_of(self, key: str, command: str = "") -> bool:
        """Whether a key is of a record of a run of *command*; of any, where that is empty."""
        match = _RUN.fullmatch(key.removeprefix(self.runs_prefix()))
        return match is not None and command.replace(" ", "-") in ("", match[1])

    def key(self, parts: ObjectKey) -> str:
        """Return the key of *parts*.

        Raises:
            ObjectKeyError: If the parts make a key that would not parse back, or one that S3
                does not take.
        """
        key = f"{self.prefix(parts.topic)}{self._name(parts)}{parts.view}{parts.extension}"
        if len(key.encode()) > KEY_BYTES_MAX:
            raise ObjectKeyError(key, f"longer than {KEY_BYTES_MAX} bytes")
        if self.parse(key) != parts:
            raise ObjectKeyError(key, "its parts could not be told apart again")
        return key

    def _name(self, parts: ObjectKey) -> str:
        """Return what stands between the prefix and the view."""
        name = self.file_delim.join((parts.topic, str(parts.partition), self._offset(parts)))
        return f"{parts.encoded_partition}{self.directory_delim}{name}"

    def _offset(self, parts: ObjectKey) -> str:
        return f"{parts.start_offset:0{self.offset_width or 1}d}"

    def parse(self, key: str) -> ObjectKey:
        """Read a listed key, its offset padded to any width.

        Open the object by the key as listed: `key` of the result may differ in padding.

        Raises:
            ObjectKeyError: If *key* is not laid out as this layout has it.
        """
        match = self._pattern.fullmatch(key)
        if match is None:
            raise ObjectKeyError(key, self._why_not())
        partition, offset = int(match["partition"]), int(match["offset"])
        check_numbers(key, partition, offset)
        directory, view = self._directory_and_view(match)
        return ObjectKey(match["topic"], partition, offset, directory, match["extension"], view)

    def _why_not(self) -> str:
        return ""

    def _directory_and_view(self, match: re.Match[str]) -> tuple[str, View]:
        return match["encoded"], View(match["view"])

    def knows(self, key: str) -> bool:
        """Whether *key* is laid out as this layout has it."""
        try:
            self.parse(key)
        except ObjectKeyError:
            return False
        return True

    def is_pointer(self, key: str) -> bool:  # noqa: ARG002
        """Whether *key* is a text that names the newest index of a partition."""
        return False


def check_numbers(key: str, partition: int, offset: int) -> None:
    """Refuse, by an `ObjectKeyError`, a partition or an offset that Kafka cannot have."""
    if partition > PARTITION_MAX or offset > OFFSET_MAX:
        raise ObjectKeyError(key, "its partition or offset is larger than Kafka's")


def _topic_pattern(end: str) -> str:
    """Return an expression for a topic's name, which is not one or two dots before *end*."""
    return rf"(?P<topic>(?!\.\.?{end})[\w.-]{{1,{TOPIC_LENGTH_MAX}}})"


@dataclass(frozen=True, slots=True)
class DatedLayout(Layout):
    """Directories are dates of upload, in UTC, and topics have no folders of their own.

    Such a layout holds values alone, each file with an index beside it.
    """

    has_folders: ClassVar[bool] = False
    is_dated: ClassVar[bool] = True

    def _name_pattern(self) -> str:
        fd = re.escape(self.file_delim)
        topic = _topic_pattern(rf"{fd}\d+{fd}\d+\.")
        dd = re.escape(self.directory_delim)
        return rf"(?P<encoded>{_DATE_OR_NOT}){dd}{topic}{self._numbers()}(?P<view>)"

    def _name(self, parts: ObjectKey) -> str:
        stem = self._stem(parts.topic, parts.partition)
        return f"{parts.encoded_partition}{self.directory_delim}{stem}{self._offset(parts)}"

    def _stem(self, topic: str, partition: int) -> str:
        return f"{topic}{self.file_delim}{_digits(partition)}{self.file_delim}"

    def upload(self, moment: datetime) -> str:
        """Return the directory of what is stored at a time."""
        return moment.date().isoformat()

    def upload_day(self, directory: str) -> date | None:
        """Return the day of such a directory; None where it does not say."""
        try:
            return date.fromisoformat(directory)
        except ValueError:
            return None

    def day_prefix(self, day: date, topic: str, partition: int) -> str:
        """Return what keys of one partition begin with on one day."""
        directory = f"{self.prefix()}{day.isoformat()}{self.directory_delim}"
        return f"{directory}{self._stem(topic, partition)}"

    def names_glob(self, topic: str, extension: str) -> str | None:
        """Return a glob that the names of a topic's value files match.

        None where names do not hold the topic, but the folders they are in.
        """
        partition, offset = self._globs()
        return f"{topic}{self.file_delim}{partition}{self.file_delim}{offset}*{extension}"

    def _globs(self) -> tuple[str, str]:
        return "[0-9]" * _PARTITION_WIDTH, "[0-9]" * (self.offset_width or 1)

    def pointer(self, topic: str, partition: int) -> str:
        """Return the key of the text that names the newest index of a partition."""
        return f"{self.prefix()}{_POINTER}{topic}{self.file_delim}{_digits(partition)}.txt"

    def is_pointer(self, key: str) -> bool:
        """Whether *key* is one that `pointer` returns."""
        return key.startswith(f"{self.prefix()}{_POINTER}")


def _digits(partition: int) -> str:
    return f"{partition:0{_PARTITION_WIDTH}d}"


TIMES: Final = {
    "date": ("%Y-%m-%d", r"\d{4}-\d\d-\d\d", "[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]"),
    "year": ("%Y", r"\d{4}", "[0-9][0-9][0-9][0-9]"),
    "month": ("%m", r"\d\d", "[0-9][0-9]"),
    "day": ("%d", r"\d\d", "[0-9][0-9]"),
    "hour": ("%H", r"\d\d", "[0-9][0-9]"),
    "minute": ("%M", r"\d\d", "[0-9][0-9]"),
    "second": ("%S", r"\d\d", "[0-9][0-9]"),
}
"""For each part of a time: how it is written, the expression that reads it, and a glob."""

_PLACES: Final = ("topic", "partition", "offset")
_FIELD: Final = re.compile(r"\{([a-z]*)\}")
_LITERAL: Final = re.compile(r"[A-Za-z0-9_/=+,@~:-]*")
_DAY: Final = frozenset({"date", "year", "month", "day"})


def words_of(template: str) -> tuple[str, ...]:
    """Return literal texts and names of fields of a template in turn, a literal first and last.

    A ``ValueError`` says why names could not be read back: a sink that resumes, a restore and
    verify find objects by what their names say.
    """
    words = tuple(_FIELD.split(template))
    literals, fields = words[::2], words[1::2]
    if unknown := [name for name in fields if name not in (*_PLACES, *TIMES)]:
        raise ValueError(f"{{{unknown[0]}}} is none of {', '.join((*_PLACES, *TIMES))}")
    if twice := [name for name in fields if fields.count(name) > 1]:
        raise ValueError(f"{{{twice[0]}}} is in it twice")
    if lacking := [name for name in _PLACES if name not in fields]:
        raise ValueError(f"without {{{lacking[0]}}} nobody could tell what an object holds")
    if not TIMES.keys() & set(fields):
        raise ValueError("it has no part of a time, such as {date}")
    if fields[-1] != "offset" or literals[-1]:
        raise ValueError("it does not end with {offset}, which the extension follows")
    _check_literals(literals)
    return words


def _check_literals(literals: tuple[str, ...]) -> None:
    """Check that what is between fields makes names that are read in one way."""
    for text in literals:
        if _LITERAL.fullmatch(text) is None:
            raise ValueError(f"{text!r} has another character than letters, digits and _/=+,@~:-")
    if literals[0].startswith("/") or any("//" in text for text in literals):
        raise ValueError("a segment is empty")
    if "_kbackup" in literals[0]:
        raise ValueError("_kbackup is the folder of the ledger")
    for at, text in enumerate(literals[1:-1], 1):
        if not text or text[0].isdigit() or text[-1].isdigit():
            between = "nothing" if not text else repr(text)
            raise ValueError(
                f"{between} stands between two fields, so it is not clear where each ends"
            )
        if at == len(literals) - 2 and text[-1].isalnum():
            raise ValueError(f"{text!r} before {{offset}} ends with a letter")


@dataclass(frozen=True, slots=True)
class TemplateLayout(DatedLayout):
    """A dated layout whose names follow a template, which `words_of` reads.

    The time of the upload in them, in UTC, is the directory: its parts in their order.

    Attributes:
        template: Such as ``{year}/{month}/{day}/{hour}/{topic}-{partition}-{offset}``.
    """

    template: str = field(kw_only=True)
    _words: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_words", words_of(self.template))
        DatedLayout.__post_init__(self)

    @property
    def _times(self) -> tuple[str, ...]:
        return tuple(name for name in self._words[1::2] if name in TIMES)

    def _filled(self, values: Mapping[str, str]) -> str:
        return "".join(values[word] if at % 2 else word for at, word in enumerate(self._words))

    def _name_pattern(self) -> str:
        values = {name: f"(?P<{name}>{TIMES[name][1]}|{UPLOAD_DATE})" for name in self._times}
        values["topic"] = rf"(?P<topic>[\w.-]{{1,{TOPIC_LENGTH_MAX}}})"
        values |= {"partition": r"(?P<partition>\d{1,10})", "offset": r"(?P<offset>\d{1,99})"}
        return "".join(
            values[word] if at % 2 else re.escape(word) for at, word in enumerate(self._words)
        )

    def _name(self, parts: ObjectKey) -> str:
        times, directory = self._times, parts.encoded_partition
        given = [UPLOAD_DATE] * len(times) if directory == UPLOAD_DATE else directory.split("/")
        numbers = {"partition": _digits(parts.partition), "offset": self._offset(parts)}
        return self._filled(
            {"topic": parts.topic, **numbers, **dict(zip(times, given, strict=True))}
        )

    def _why_not(self) -> str:
        return NOT_OF_TEMPLATE

    def _directory_and_view(self, match: re.Match[str]) -> tuple[str, View]:
        if match["topic"] in (".", ".."):
            raise ObjectKeyError(match.string)
        parts = [match[name] for name in self._times]
        return UPLOAD_DATE if UPLOAD_DATE in parts else "/".join(parts), View.VALUE

    def upload(self, moment: datetime) -> str:
        """Return the time of an upload as names hold it."""
        at = moment.astimezone(UTC)
        return "/".join(at.strftime(TIMES[name][0]) for name in self._times)

    def upload_day(self, directory: str) -> date | None:
        """Return the day of such a time; None where names do not hold a whole one."""
        parts = dict(zip(self._times, directory.split("/"), strict=False))
        try:
            if "date" in parts:
                return date.fromisoformat(parts["date"])
            return date(*(int(parts[name]) for name in ("year", "month", "day")))
        except (KeyError, ValueError):
            return None

    def day_prefix(self, day: date, topic: str, partition: int) -> str:
        """Return what keys of a partition begin with on a day; of all, where they share no more."""
        at = datetime(day.year, day.month, day.day, tzinfo=UTC)
        values = {name: at.strftime(TIMES[name][0]) for name in _DAY}
        values |= {"topic": topic, "partition": _digits(partition)}
        found, seen = "", set()
        for number, word in enumerate(self._words):
            if number % 2 and word not in values:
                break
            found += values[word] if number % 2 else word
            seen |= {word} if number % 2 else set()
        return self.prefix() + (found if "date" in seen or seen >= _DAY - {"date"} else "")

    def names_glob(self, topic: str, extension: str) -> str | None:
        """Return a glob for the names of a topic's value files, if they hold the topic."""
        values = {name: TIMES[name][2] for name in TIMES} | {"topic": "\0"}
        values["partition"], values["offset"] = self._globs()
        last = self._filled(values).rpartition("/")[2]
        return f"{last}*{extension}".replace("\0", topic) if "\0" in last else None
