"""The class archive: Spark's classes as the JVM wants them in memory, 70 MB, made by the doctor.

There are two kinds, which the extension tells apart: ``.aot``, an ahead-of-time cache (JEP 483 and
514, Java 25), and ``.jsa``, of class data sharing.
"""

import os
import re
from pathlib import Path
from typing import Final

from kbackup.engine.settings import EngineSettings

_CLASHES: Final = re.compile(r"-Xshare|-XX:(SharedArchiveFile|AOTCache|AOTConfiguration)")
"""Options of the operator's with which Java does not start beside an ahead-of-time cache."""


def using(archive: Path) -> str:
    """Return the JVM option that reads an archive of this kind."""
    return "-XX:AOTCache" if archive.suffix == ".aot" else "-XX:SharedArchiveFile"


def making(archive: Path) -> str:
    """Return the JVM option that makes an archive of this kind at the JVM's end."""
    return "-XX:AOTCacheOutput" if archive.suffix == ".aot" else "-XX:ArchiveClassesAtExit"


def class_archive(settings: EngineSettings) -> Path | None:
    """Return the class archive of the settings' Java, None where there is none to be read."""
    archive = None if settings.jvm is None else settings.jvm.class_archive
    try:
        is_there = archive is not None and archive.is_file() and os.access(archive, os.R_OK)
    except OSError:
        return None
    given = settings.conf.get("spark.driver.extraJavaOptions", "")
    if archive is None or (archive.suffix == ".aot" and _CLASHES.search(given)):
        return None
    return archive if is_there else None
