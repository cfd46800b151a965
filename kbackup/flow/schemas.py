"""Whether a record goes into the open file when its schema is another: ``schema.compatibility``.

Source: kafka-connect-storage-common 9bb1f372, ``StorageSchemaCompatibility``.
"""

from enum import StrEnum

import pyarrow as pa

from kbackup.columns import Schema
from kbackup.connect import projection
from kbackup.connect import schema as connect


class Compatibility(StrEnum):
    """What the operator allows within one file."""

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    FORWARD = "FORWARD"
    FULL = "FULL"


class Verdict(StrEnum):
    """What is done with a record."""

    APPEND = "append"
    PROJECT = "project"  # brought under the file's schema, then appended
    ROTATE = "rotate"  # the files are closed first


def needs_version(mode: Compatibility, schema: Schema | None) -> bool:
    """Whether a record is bad because its schema has no version, and *mode* compares versions."""
    return mode is not Compatibility.NONE and schema is not None and schema.version is None


def judge(mode: Compatibility, file: Schema | None, record: Schema | None) -> Verdict:
    """Decide about a record under *record* when the open file is under *file*; None is without.

    Neither may lack a version where `needs_version` asks for one.
    """
    if file == record:
        return Verdict.APPEND
    if file is None or record is None or mode is Compatibility.NONE or not _takes(file, record):
        return Verdict.ROTATE
    has, gets = file.version or 0, record.version or 0
    rotates = gets < has if mode is Compatibility.FORWARD else gets > has
    return Verdict.ROTATE if rotates else Verdict.PROJECT


def brought_under(file: Schema | None, values: pa.Array, record: Schema | None) -> pa.Array | None:
    """Return *values*, which are under *record*, under *file*; None where they cannot be."""
    has, gets = connect.of(file), connect.of(record)
    if has is None or gets is None or not projection.is_projectable(gets, has):
        return None
    return projection.projected(values, gets, has)


def _takes(file: Schema, record: Schema) -> bool:
    """Whether values under *record* can be brought under *file* without a loss."""
    has, gets = connect.of(file), connect.of(record)
    if has is None or gets is None:
        return file.takes(record)
    return projection.is_projectable(gets, has)
