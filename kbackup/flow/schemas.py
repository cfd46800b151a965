"""Whether a record goes into the open file when its schema is another: ``schema.compatibility``.

Source: kafka-connect-storage-common 9bb1f372, ``StorageSchemaCompatibility``.
"""

from enum import StrEnum

from kbackup.columns import Schema


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
    if file is None or record is None or mode is Compatibility.NONE or not file.takes(record):
        return Verdict.ROTATE
    has, gets = file.version or 0, record.version or 0
    rotates = gets < has if mode is Compatibility.FORWARD else gets > has
    return Verdict.ROTATE if rotates else Verdict.PROJECT
