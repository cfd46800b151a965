"""What a file says of where it came from, whatever its object is called."""

from typing import BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq

from kbackup.formats.record_reading import METADATA_PREFIX
from kbackup.records import TopicPartition

_NAMES: Final = tuple(f"{METADATA_PREFIX}{name}".encode() for name in ("topic", "partition"))


def read(format_name: str, file: BinaryIO) -> TopicPartition | None:
    """Return the topic and partition a file was written for; leaves the file at its start.

    None where the format has no room for them, they are not there, or the file is damaged in a
    way that whoever reads its rows will name.
    """
    if format_name != "parquet":
        return None
    try:
        metadata = pq.ParquetFile(file).metadata.metadata or {}
        topic, partition = (metadata.get(name) for name in _NAMES)
        if topic is None or partition is None:
            return None
        return TopicPartition(topic.decode(), int(partition))
    except (pa.ArrowException, OSError, ValueError, KeyError, OverflowError, MemoryError):
        return None
    finally:
        file.seek(0)
