"""What each command may have to ask of S3: the least policy for whoever runs it."""

from dataclasses import dataclass
from typing import Final

BUCKET: Final = ""
OBJECTS: Final = "topics/*"
RECORDS: Final = "_kbackup/*"
"""What a permission is on: the bucket itself, the backup's objects (below ``topics.dir``), or what
kbackup keeps beside them."""

_READ: Final = {("s3:ListBucket", BUCKET), ("s3:GetObject", RECORDS), ("s3:GetObject", OBJECTS)}
_LIST: Final = {("s3:ListBucket", BUCKET), ("s3:GetObject", RECORDS)}
_KEEP: Final = {("s3:PutObject", RECORDS), ("s3:DeleteObject", RECORDS)}


@dataclass(frozen=True, slots=True)
class Need:
    """What a command asks for.

    Attributes:
        command: Its words, after ``kbackup``.
        grants: Actions, each with what it is on.
    """

    command: str
    grants: frozenset[tuple[str, str]]


NEEDS: Final = (
    Need(
        "sink",
        frozenset(
            _READ | _KEEP | {("s3:PutObject", OBJECTS), ("s3:AbortMultipartUpload", OBJECTS)}
        ),
    ),
    Need("sink plan", frozenset(_READ)),
    Need("sink status", frozenset(_LIST)),
    Need(
        "sink prune",
        frozenset(
            {("s3:ListBucketMultipartUploads", BUCKET), ("s3:AbortMultipartUpload", OBJECTS)}
        ),
    ),
    Need("restore", frozenset(_READ | _KEEP)),
    Need("restore topics", frozenset(_LIST)),
    Need("restore verify", frozenset(_LIST)),
    Need("restore peek", frozenset({("s3:ListBucket", BUCKET), ("s3:GetObject", OBJECTS)})),
)
"""Each command, with the settings that it has if nothing else is said."""
