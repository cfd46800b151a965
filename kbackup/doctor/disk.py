"""Disk space for unfinished objects."""

import os
import shutil

from kbackup import spool
from kbackup.config import Settings
from kbackup.doctor import Check, failed
from kbackup.errors import KbackupError
from kbackup.sink.job import SPOOL_BYTES

_MIB = 1 << 20


def space(settings: Settings) -> Check:
    """Return whether ``TMPDIR`` is usable and has space for unfinished objects.

    Each core fills one file at a time.
    """
    try:
        folder = spool.folder()
    except KbackupError as error:
        return failed("disk", "TMPDIR", error)
    wanted = (os.cpu_count() or 1) * max(settings.rotate_bytes, SPOOL_BYTES)
    free = shutil.disk_usage(folder).free
    text = f"{folder} has {free // _MIB} MiB free"
    if free < wanted:
        text += f", and open files may take {wanted // _MIB} MiB"
        return Check("disk", "TMPDIR", "warn", text, "free some, or set TMPDIR to a larger disk")
    return Check("disk", "TMPDIR", "ok", text)
