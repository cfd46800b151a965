"""Headers that describe the object a record comes from: ``file.metadata.headers.enable``.

The names are those that Kafka Connect's sources of files use.
"""

from datetime import UTC, datetime

import pyarrow as pa

from kbackup.backup.catalog import BackupFile
from kbackup.flow.views import HEADERS_AS_TEXT


def of(file: BackupFile, rows: int) -> pa.Array:
    """Return the headers of *rows* records of *file*, `HEADERS_AS_TEXT`."""
    modified = datetime.fromtimestamp(file.modified, UTC)
    pairs = {
        "file.name": file.key.rpartition("/")[2],
        "file.path": file.key,
        "file.last.modified": modified.strftime("%Y-%m-%dT%H:%M:%S.") + f"{_ms(modified)}Z",
        "file.length": str(file.size),
    }
    headers = [{"key": name, "value": text} for name, text in pairs.items()]
    one = pa.array([headers], HEADERS_AS_TEXT)
    return one.take(pa.repeat(pa.scalar(0, pa.int32()), rows))


def _ms(moment: datetime) -> str:
    return f"{moment.microsecond // 1000:03d}"
