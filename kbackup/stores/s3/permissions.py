"""What each command may have to ask of S3: the least policy for whoever runs it."""

from dataclasses import dataclass
from typing import Final

BUCKET: Final = ""
OBJECTS: Final = "topics/*"
RECORDS: Final = "_kbackup/*"
"""What a permission is on: the bucket itself, the backup's objects (below ``topics.dir``), or what
kbackup keeps beside them."""

_LIST: Final = frozenset({("s3:ListBucket", BUCKET), ("s3:GetObject", RECORDS)})
_READ: Final = _LIST | {("s3:GetObject", OBJECTS)}
_KEEP: Final = frozenset({("s3:PutObject", RECORDS), ("s3:DeleteObject", RECORDS)})
_EXAMINE: Final = frozenset(
    {
        ("s3:ListBucket", BUCKET),
        ("s3:GetObject", OBJECTS),
        ("s3:GetBucketVersioning", BUCKET),
        ("s3:GetLifecycleConfiguration", BUCKET),
        ("s3:GetBucketObjectLockConfiguration", BUCKET),
    }
)
"""The last three may be missing: ``doctor`` then reports them as not checkable."""


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
        _READ | _KEEP | {(f"s3:{do}", OBJECTS) for do in ("PutObject", "AbortMultipartUpload")},
    ),
    Need("sink plan", _READ),
    Need("sink status", _LIST),
    Need(
        "sink prune",
        frozenset(
            {("s3:ListBucketMultipartUploads", BUCKET), ("s3:AbortMultipartUpload", OBJECTS)}
        ),
    ),
    Need("restore", _READ | _KEEP),
    Need("restore --follow", _READ | _KEEP),
    Need("restore plan", _READ),
    Need("restore status", _LIST),
    Need("restore topics", _LIST),
    Need("restore query", _READ),
    Need("restore verify", _LIST),
    Need("restore verify --deep", _READ),
    Need("restore verify --rebuild", _READ | {("s3:PutObject", RECORDS)}),
    Need("restore peek", frozenset({("s3:ListBucket", BUCKET), ("s3:GetObject", OBJECTS)})),
    Need("restore thaw", _READ | {("s3:RestoreObject", OBJECTS), ("s3:RestoreObject", RECORDS)}),
    Need("doctor", _EXAMINE),
    Need(
        "doctor --write-probe",
        _EXAMINE | _KEEP | {("s3:GetObject", RECORDS), ("s3:AbortMultipartUpload", RECORDS)},
    ),
)
"""Each command, with the settings that it has if nothing else is said."""
