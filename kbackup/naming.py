"""Object keys: the contract between ``sink`` and ``restore``.

A key is relative to the store's root.  With the default `Layout`::

    topics/orders/partition=3/orders+3+0000004200.record.zstd.parquet
    dir    topic  encoded     topic+partition+start offset, view, extension
                  partition

No other module builds or splits a key.  The layout is the Kafka Connect S3 sink's, so each tool
restores what the other wrote.

Source: kafka-connect-storage-cloud 87eb7d39, ``TopicPartitionWriter.fileKeyToCommit``.
"""

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from kbackup.errors import IllegalTopicNameError, ObjectKeyError

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
INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "_schemas"})


class View(StrEnum):
    """The part of each record a file holds; the text stands before the extension."""

    RECORD = ".record"  # ours, and the default: everything there is
    VALUE = ""  # the connectors' three, for compatibility
    KEY = ".keys"
    HEADERS = ".headers"


def check_topic(topic: str) -> str:
    """Return *topic* if Kafka allows it as a name.

    Raises:
        IllegalTopicNameError: If it is empty, longer than 249 characters, ``.`` or ``..``, or has
            a character other than ASCII letters, digits, ``.``, ``_`` and ``-``.
    """
    if _TOPIC.fullmatch(topic) is None:
        raise IllegalTopicNameError(
            f"{topic!r} is not a legal topic name",
            "Kafka allows 1 to 249 of A-Z a-z 0-9 . _ -, but not the names '.' and '..'",
            "choose another --rename",
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
    """

    topics_dir: str = "topics"
    directory_delim: str = "/"
    file_delim: str = "+"
    offset_width: int = OFFSET_WIDTH
    _pattern: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        dd, fd = re.escape(self.directory_delim), re.escape(self.file_delim)
        pattern = re.compile(
            re.escape(self.prefix())
            + rf"(?P<topic>(?!\.\.?{dd})[\w.-]{{1,{TOPIC_LENGTH_MAX}}}){dd}(.+){dd}"
            + rf"(?P=topic){fd}(\d{{1,10}}){fd}(\d{{1,99}})"
            + r"(\.record|\.keys|\.headers|)((?:\.[A-Za-z0-9]+)+)",
            re.ASCII | re.DOTALL,  # record text, newlines too, can be in a field partition
        )
        object.__setattr__(self, "_pattern", pattern)

    def prefix(self, topic: str | None = None) -> str:
        """Return what the keys of all topics, or of one, begin with; ends with the delimiter."""
        parts = [part for part in (self.topics_dir, topic) if part]
        return "".join(part + self.directory_delim for part in parts)

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
        name = self.file_delim.join(
            (parts.topic, str(parts.partition), f"{parts.start_offset:0{self.offset_width or 1}d}")
        )
        key = (
            f"{self.prefix(parts.topic)}{parts.encoded_partition}{self.directory_delim}"
            f"{name}{parts.view}{parts.extension}"
        )
        if len(key.encode()) > KEY_BYTES_MAX:
            raise ObjectKeyError(key, f"longer than {KEY_BYTES_MAX} bytes")
        if self.parse(key) != parts:
            raise ObjectKeyError(key, "its parts could not be told apart again")
        return key

    def parse(self, key: str) -> ObjectKey:
        """Read a listed key, its offset padded to any width.

        Open the object by the key as listed: `key` of the result may differ in padding.

        Raises:
            ObjectKeyError: If *key* is not laid out as above.
        """
        match = self._pattern.fullmatch(key)
        if match is None:
            raise ObjectKeyError(key)
        topic, encoded_partition, partition, offset, view, extension = match.groups()
        if int(partition) > PARTITION_MAX or int(offset) > OFFSET_MAX:
            raise ObjectKeyError(key, "its partition or offset is larger than Kafka's")
        return ObjectKey(
            topic, int(partition), int(offset), encoded_partition, extension, View(view)
        )
