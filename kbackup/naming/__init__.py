"""Object keys: the contract between ``sink`` and ``restore``.

A key is relative to the store's root.  With the default `Layout`::

    topics/orders/partition=3/orders+3+0000004200.record.zstd.parquet
    dir    topic  encoded     topic+partition+start offset, view, extension
                  partition

No other module builds or splits a key.  The layout is the Kafka Connect S3 sink's, so each tool
restores what the other wrote.  A layout may be dated, as the block-gzip sink's is::

    systest/2016-02-24/system-test-00000-000000000100.gz
    dir     date of    topic-partition-start offset, view, extension
            upload

And it may be generic: then `kbackup.naming.expressions` say of any key which topic it belongs to.

Sources: kafka-connect-storage-cloud 87eb7d39, ``TopicPartitionWriter.fileKeyToCommit``; the
published objects of the block-gzip sink.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date, datetime
from enum import StrEnum
from typing import Final

from kbackup.errors import IllegalTopicNameError, ObjectKeyError
from kbackup.naming import expressions
from kbackup.naming.expressions import Expression
from kbackup.naming.name_template import NameTemplate

OFFSET_WIDTH: Final = 10
"""Digits a start offset is zero-padded to; a longer offset is never cut."""

PARTITION_MAX: Final = 2**31 - 1
OFFSET_MAX: Final = 2**63 - 1
TOPIC_LENGTH_MAX: Final = 249
KEY_BYTES_MAX: Final = 1024
"""Bytes of UTF-8 that S3 allows in a key."""

DIRECTORY_BYTES_MAX: Final = 512
"""Bytes of a directory that a partitioner may give: topic and name fit beside it into a key."""

RECORDS_FOLDER: Final = "_kbackup"
"""Beside ``topics.dir``: run records, gaps and locks."""

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
    """Return *topic* if Kafka allows it as a name.

    Args:
        topic: The name.
        do: What to do if it does not.

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
    """How keys are put together; the defaults are the connectors'.

    Attributes:
        topics_dir: First part of every key, may have several segments, may be empty.
        directory_delim: Between the segments of a key.
        file_delim: Between topic, partition and offset in an object's name.
        offset_width: Least digits of the start offset.
        is_dated: Directories are dates of upload, in UTC, and topics have no folders of their own.
            Such a layout holds values alone, each file with an index beside it.
        expressions: Of a generic layout, which is only read: what gives an object its topic.
            Objects are values; each is a directory of its own, named as its key.
        tombstones: Directory of the files that hold the keys of tombstones, which have no values.
        template: Of a dated layout: what names look like, as `NameTemplate` reads it; empty for
            the block-gzip sink's.  The time in them is the directory.
    """

    topics_dir: str = "topics"
    directory_delim: str = "/"
    file_delim: str = "+"
    offset_width: int = OFFSET_WIDTH
    is_dated: bool = False
    expressions: tuple[Expression, ...] = ()
    tombstones: str = "tombstone"
    template: str = ""
    _pattern: re.Pattern[str] = field(init=False, repr=False, compare=False)
    _names: NameTemplate | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        names = NameTemplate.read(self.template) if self.is_dated and self.template else None
        object.__setattr__(self, "_names", names)
        if names is not None:
            text = rf"{re.escape(self.prefix())}{names.pattern()}(?P<extension>(?:\.[A-Za-z0-9]+)+)"
            object.__setattr__(self, "_pattern", re.compile(text, re.ASCII))
            return
        dd, fd = re.escape(self.directory_delim), re.escape(self.file_delim)
        end = rf"{fd}\d+{fd}\d+\." if self.is_dated else dd
        topic = rf"(?P<topic>(?!\.\.?{end})[\w.-]{{1,{TOPIC_LENGTH_MAX}}})"
        if self.is_dated:
            stem, views = rf"(?P<encoded>{_DATE_OR_NOT}){dd}{topic}", ""
        else:
            stem = rf"{topic}{dd}(?P<encoded>.+){dd}(?P=topic)"
            views = r"\.record|\.keys|\.headers|"
        pattern = re.compile(
            rf"{re.escape(self.prefix())}{stem}{fd}(?P<partition>\d{{1,10}}){fd}"
            rf"(?P<offset>\d{{1,99}})(?P<view>{views})(?P<extension>(?:\.[A-Za-z0-9]+)+)",
            re.ASCII | re.DOTALL,  # record text, newlines too, can be in a field partition
        )
        object.__setattr__(self, "_pattern", pattern)

    @property
    def is_generic(self) -> bool:
        """Whether expressions say which topic an object belongs to."""
        return bool(self.expressions)

    @property
    def has_folders(self) -> bool:
        """Whether each topic has a folder of its own."""
        return not (self.is_dated or self.is_generic)

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

    def upload(self, moment: datetime) -> str:
        """Return the directory of what is stored at a time in a dated layout."""
        return moment.date().isoformat() if self._names is None else self._names.times(moment)

    def upload_day(self, directory: str) -> date | None:
        """Return the day of such a directory; None where it does not say."""
        try:
            day = date.fromisoformat(directory) if self._names is None else None
        except ValueError:
            return None
        return day if self._names is None else self._names.day(directory)

    def day_prefix(self, day: date, topic: str, partition: int) -> str:
        """Return what keys of one partition begin with on one day of a dated layout."""
        if self._names is None:
            directory = f"{self.prefix()}{day.isoformat()}{self.directory_delim}"
            return f"{directory}{self._stem(topic, partition)}"
        digits = f"{partition:0{_PARTITION_WIDTH}d}"
        return f"{self.prefix()}{self._names.beginning(day, topic, digits)}"

    def names_glob(self, topic: str, extension: str) -> str | None:
        """Return a glob that the names of a topic's value files match in a dated layout.

        None where names do not hold the topic, but the folders they are in.
        """
        partition, offset = "[0-9]" * _PARTITION_WIDTH, "[0-9]" * (self.offset_width or 1)
        if self._names is not None:
            name = self._names.glob(topic, partition, offset)
            return None if name is None else f"{name}*{extension}"
        return f"{topic}{self.file_delim}{partition}{self.file_delim}{offset}*{extension}"

    def pointer(self, topic: str, partition: int) -> str:
        """Return the key of the text that names the newest index of a partition."""
        where = f"{topic}{self.file_delim}{partition:0{_PARTITION_WIDTH}d}"
        return f"{self.prefix()}{_POINTER}{where}.txt"

    def is_pointer(self, key: str) -> bool:
        """Whether *key* is one that `pointer` returns."""
        return self.is_dated and key.startswith(f"{self.prefix()}{_POINTER}")

    def _stem(self, topic: str, partition: int) -> str:
        width = _PARTITION_WIDTH if self.is_dated else 1
        return f"{topic}{self.file_delim}{partition:0{width}d}{self.file_delim}"

    def records_prefix(self) -> str:
        """Return the folder of run records, beside the last segment of ``topics.dir``."""
        parent, delim, _ = self.topics_dir.rpartition(self.directory_delim)
        return f"{parent}{delim}{RECORDS_FOLDER}/"

    def key(self, parts: ObjectKey) -> str:
        """Return the key of *parts*.

        Raises:
            ObjectKeyError: If the parts make a key that would not parse back, or one that S3
                does not take.
        """
        offset = f"{parts.start_offset:0{self.offset_width or 1}d}"
        if self._names is None:
            stem = f"{parts.encoded_partition}{self.directory_delim}"
            stem += f"{self._stem(parts.topic, parts.partition)}{offset}"
        else:
            times = None if parts.encoded_partition == UPLOAD_DATE else parts.encoded_partition
            digits = f"{parts.partition:0{_PARTITION_WIDTH}d}"
            stem = self._names.name(parts.topic, digits, offset, times)
        key = f"{self.prefix(parts.topic)}{stem}{parts.view}{parts.extension}"
        if len(key.encode()) > KEY_BYTES_MAX:
            raise ObjectKeyError(key, f"longer than {KEY_BYTES_MAX} bytes")
        if self.parse(key) != parts:
            raise ObjectKeyError(key, "its parts could not be told apart again")
        return key

    def parse(self, key: str) -> ObjectKey:
        """Read a listed key, its offset padded to any width.

        Open the object by the key as listed: `key` of the result may differ in padding.

        Raises:
            ObjectKeyError: If *key* is not laid out as above, or no expression matches it.
        """
        if self.is_generic:
            return self._placed(key)
        match = self._pattern.fullmatch(key)
        if match is None:
            raise ObjectKeyError(key, "" if self._names is None else NOT_OF_TEMPLATE)
        partition, offset = int(match["partition"]), int(match["offset"])
        if partition > PARTITION_MAX or offset > OFFSET_MAX:
            raise ObjectKeyError(key, "its partition or offset is larger than Kafka's")
        if self._names is None:
            directory, view = match["encoded"], View(match["view"])
        else:
            if match["topic"] in (".", ".."):
                raise ObjectKeyError(key)
            directory, view = self._names.times_of(match) or UPLOAD_DATE, View.VALUE
        return ObjectKey(match["topic"], partition, offset, directory, match["extension"], view)

    def knows(self, key: str) -> bool:
        """Whether *key* is laid out as this layout has it."""
        try:
            self.parse(key)
        except ObjectKeyError:
            return False
        return True

    def _placed(self, key: str) -> ObjectKey:
        """Return where *key* belongs by the expressions."""
        is_ours = key.startswith(self.records_prefix()) or key.endswith(self.directory_delim)
        place = None if is_ours else expressions.place(self.expressions, key)
        if place is None:
            raise ObjectKeyError(key, NOT_MATCHED)
        if place.partition > PARTITION_MAX or place.offset > OFFSET_MAX:
            raise ObjectKeyError(key, "its partition or offset is larger than Kafka's")
        try:
            topic = check_topic(place.topic)
        except IllegalTopicNameError as error:
            raise ObjectKeyError(key, error.what) from None
        name = key.rpartition(self.directory_delim)[2]
        extension = "".join(name.partition(".")[1:])
        return ObjectKey(topic, place.partition, place.offset, key, extension, View.VALUE)
