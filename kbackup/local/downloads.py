"""Download into the user's cache, each file whole or not at all, such as Kafka's jars.

A directory in the cache is valid if it has every file of its checksum list with the right SHA-256;
other files in it are never used, and a jar that is not in the list is not run.  Ivy fetches them,
a download tool that ships with PySpark and knows Maven Central: it needs only Java and PySpark.
"""

import hashlib
import logging
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from kbackup.errors import LocalServiceError
from kbackup.files import cache_directory
from kbackup.local.java import package_folder, proxy_options, trust_store_options
from kbackup.spark.java import Java

LOCK_SECONDS: Final = 900
"""How long one process waits for another's download."""


def checksums(text: str) -> dict[str, str]:
    """Return file name to SHA-256 (64 hexadecimal digits) from the lines of ``sha256sum``."""
    pairs = (line.split(maxsplit=1) for line in text.splitlines() if line.strip())
    return {name: digest for digest, name in pairs}


def damaged(directory: Path, sums: Mapping[str, str]) -> list[str]:
    """Return the names in *sums* that are missing from *directory* or differ, in order."""
    return [name for name, digest in sums.items() if _sha256(directory / name) != digest]


def fetch_once(name: str, sums: Mapping[str, str], fetch: Callable[[Path], None]) -> Path:
    """Return the cache's directory *name*, downloaded first unless it exists undamaged.

    Two concurrent processes download it once.  A reader sees the whole directory or none.

    Args:
        name: The directory's name; one for each content, so it should include a version.
        fetch: Puts the files into the given empty directory, or raises.

    Raises:
        LocalServiceError: If what was fetched does not match *sums*, the cache cannot be used, or
            another process held the download for `LOCK_SECONDS`.
    """
    cache = cache_directory()
    target = cache / name
    if not damaged(target, sums):
        return target
    with _locked(cache / f"{name}.lock"):
        if damaged(target, sums):  # unless the process we waited for has just fetched it
            _replace(target, sums, fetch)
    return target


def _replace(target: Path, sums: Mapping[str, str], fetch: Callable[[Path], None]) -> None:
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as scratch:
        fresh = Path(scratch, "fresh")
        fresh.mkdir()
        fetch(fresh)
        if wrong := damaged(fresh, sums):
            raise LocalServiceError(
                f"the download for {target.name} is not what it should be",
                f"missing or with another SHA-256: {', '.join(wrong)}",
                "try again; if that does not help, a proxy on the way alters downloads",
            )
        if target.exists():  # damaged: move it away first, because a directory cannot be replaced
            target.rename(Path(scratch, "damaged"))
        fresh.rename(target)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    try:
        with FileLock(path, timeout=LOCK_SECONDS):
            yield
    except Timeout as error:
        raise LocalServiceError(
            f"another process has held {path} for {LOCK_SECONDS} s",
            do="check what it is doing, and stop it if it hangs",
        ) from error


def _sha256(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None  # missing, unreadable and altered are the same to the caller: fetch it again


_logger = logging.getLogger(__name__)

_PAUSES: Final = (2.0, 5.0)
"""Seconds before the second and third attempt at a download."""

_TRY_SECONDS: Final = 600
"""How long one attempt may take; half a minute is usual."""


_FILES_ALONE: Final = """\
<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers>
    <ibiblio name="central" m2compatible="true" usepoms="false"/>
  </resolvers>
</ivysettings>
"""
"""Ivy's repository as a plain file store: module descriptions are not read."""


@dataclass(frozen=True, slots=True)
class Download:
    """A program to download.

    Attributes:
        program: Its name and version, for messages.
        module: What to download, an Ivy module file.
    """

    program: str
    directory: str
    module: str
    sums: Mapping[str, str]
    has_dependencies: bool = True


def fetch_jars(java: Java, wanted: Download) -> list[Path]:
    """Return the files of a program, downloading them with Ivy on *java* the first time.

    Raises:
        LocalServiceError: If they are not in the cache and cannot be downloaded, or differ from
            their checksums.
    """

    def download(target: Path) -> None:
        why = _download(java, wanted, target)
        if why:
            raise LocalServiceError(
                f"{wanted.program} is not in the cache and could not be downloaded",
                why,
                "connect to the network, or set HTTPS_PROXY, or, behind a proxy that re-signs "
                f"TLS, SSL_CERT_FILE; or copy {cache_directory() / wanted.directory} from a "
                "machine that has it",
            )

    found = fetch_once(wanted.directory, wanted.sums, download)
    return [found / name for name in wanted.sums]


def ivy_jar() -> Path:
    """Return the Ivy among the jars of PySpark, or of ``SPARK_HOME``, without importing PySpark.

    Raises:
        LocalServiceError: If there is none.
    """
    home = os.environ.get("SPARK_HOME")
    homes = [*filter(None, (package_folder("pyspark"), Path(home) if home else None))]
    for home_directory in homes:
        for jar in sorted(home_directory.glob("jars/ivy-*.jar")):
            return jar
    raise LocalServiceError(
        "no Ivy to download with",
        f"no jars/ivy-*.jar in {', '.join(map(str, homes)) or 'PySpark, which is not installed'}",
        "run: pip install pyspark",
    )


def _download(java: Java, wanted: Download, target: Path) -> str:
    """Put the files into *target*, or leave what came to the next try; return why, if it failed."""
    why = ""
    with tempfile.TemporaryDirectory(prefix="kbackup-ivy-") as scratch:
        for pause in (*_PAUSES, 0.0):
            why = _try_download(java, wanted, target, Path(scratch))
            if not why and not damaged(target, wanted.sums):
                return ""
            why = why or f"missing or altered: {', '.join(damaged(target, wanted.sums))}"
            _logger.warning("%s was not downloaded: %s", wanted.program, why)
            time.sleep(pause)
    return why


def _try_download(java: Java, wanted: Download, target: Path, scratch: Path) -> str:
    """Run Ivy once; return why it failed in one line, or nothing."""
    module, settings = scratch / "ivy.xml", scratch / "settings.xml"
    module.write_text(wanted.module)
    settings.write_text(_FILES_ALONE)
    command = [
        str(java.executable),
        *trust_store_options(),
        *proxy_options(),
        "-Dsun.net.client.defaultConnectTimeout=20000",
        "-Dsun.net.client.defaultReadTimeout=60000",
        f"-Divy.default.ivy.user.dir={scratch}/home",  # independent of the user's own Ivy
        *("-cp", str(ivy_jar()), "org.apache.ivy.Main"),
        *(("-m2compatible",) if wanted.has_dependencies else ("-settings", str(settings))),
        *("-cache", f"{scratch}/cache", "-ivy", str(module), "-confs", "default"),
        *("-types", "jar", "bundle", "tar.gz"),
        *("-retrieve", f"{target}/[artifact]-[revision](-[classifier]).[ext]"),
    ]
    try:
        done = subprocess.run(  # noqa: S603  (nothing in it comes from outside)
            command,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_TRY_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return f"not finished after {_TRY_SECONDS} s"
    return "" if done.returncode == 0 else _reason(done.stdout)


def _reason(output: str) -> str:
    """Return the most informative line of Ivy's output."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for mark in ("Server access error", "Host ", "Exception", "not found"):
        for line in lines:
            if mark in line:
                return line
    return lines[-1] if lines else "Ivy gave no reason"


_MODULE: Final = """\
<ivy-module version="2.0">
  <info organisation="kbackup" module="local-kafka"/>
  <dependencies>
    <dependency org="org.apache.kafka" name="kafka_2.13" rev="{version}"
                conf="default->default"/>
    <!-- what Kafka logs through, which it names as its user's choice -->
    <dependency org="{organisation}" name="{name}" rev="{revision}"
                conf="default->default"/>
  </dependencies>
</ivy-module>
"""

_LOG4J_2: Final = ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.24.3")
_LOG4J_1: Final = ("org.slf4j", "slf4j-reload4j", "1.7.36")


@dataclass(frozen=True, slots=True)
class Release:
    """A release of Apache Kafka that can be started.

    A new one needs a ``.sha256`` file: the output of ``sha256sum *.jar`` over its jars.

    Attributes:
        logger: The organisation, the name and the revision of what it logs through.
        has_log4j_2: It is configured by a file of Log4j 2; else by one of Log4j 1.
        has_standalone: Its storage can be formatted with ``--standalone``, by which its controllers
            can change later; else a fixed list names them.
    """

    version: str
    logger: tuple[str, str, str] = _LOG4J_2
    has_log4j_2: bool = True
    has_standalone: bool = True

    @property
    def sums(self) -> str:
        """The name of the file with its checksums."""
        return f"kafka-{self.version}.sha256"

    @property
    def wanted(self) -> Download:
        """What to download."""
        organisation, name, revision = self.logger
        module = _MODULE.format(
            version=self.version, organisation=organisation, name=name, revision=revision
        )
        sums = checksums(resources.files("kbackup.local").joinpath(self.sums).read_text())
        return Download(f"Apache Kafka {self.version}", f"kafka-{self.version}", module, sums)


RELEASES: Final = {
    "3.7": Release("3.7.2", _LOG4J_1, has_log4j_2=False, has_standalone=False),
    "3.9": Release("3.9.1", _LOG4J_1, has_log4j_2=False),
    "4.1": Release("4.1.1"),
}
"""By the names that ``KBACKUP_KAFKA`` takes; kbackup is tested with them."""

NEWEST: Final = RELEASES["4.1"]

KAFKA_VERSION: Final = NEWEST.version


def chosen() -> Release:
    """Return the release that ``KBACKUP_KAFKA`` names, else the newest."""
    return RELEASES.get(os.environ.get("KBACKUP_KAFKA", ""), NEWEST)


def fetch_kafka(java: Java, release: Release = NEWEST) -> list[Path]:
    """Return the jars of Kafka's class path, downloading them the first time.

    Raises:
        LocalServiceError: If they are not in the cache and cannot be downloaded, or differ from
            the checksums that come with this package.
    """
    return fetch_jars(java, release.wanted)
