"""The class archive: Spark's classes as the JVM wants them in memory, 70 MB, made by the doctor."""

import os
from pathlib import Path

from kbackup.engine.settings import EngineSettings


def class_archive(settings: EngineSettings) -> Path | None:
    """Return the class archive of the settings' Java, None where there is none to be read."""
    archive = None if settings.jvm is None else settings.jvm.class_archive
    try:
        is_there = archive is not None and archive.is_file() and os.access(archive, os.R_OK)
    except OSError:
        return None
    return archive if is_there else None
