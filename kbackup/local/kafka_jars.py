"""Apache Kafka's own jars, fetched once into the user's cache.

They come from the central Maven repository by way of Ivy, a download tool that ships inside
PySpark and knows where that is, so nothing but Java and PySpark is needed.  ``kafka.sha256`` lists
every file with its checksum; a jar that is not in it is not run.
"""

import logging
import os
import subprocess
import tempfile
import time
from collections.abc import Mapping
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from kbackup.errors import LocalServiceError
from kbackup.local.downloads import cache_directory, checksums, damaged, fetch_once
from kbackup.local.java import Java, proxy_options, trust_store_options

_logger = logging.getLogger(__name__)

KAFKA_VERSION: Final = "4.1.1"
"""A new version needs a new ``kafka.sha256``: the output of ``sha256sum *.jar`` over its files."""

_WANTED: Final = f"""\
<ivy-module version="2.0">
  <info organisation="kbackup" module="local-kafka"/>
  <dependencies>
    <dependency org="org.apache.kafka" name="kafka_2.13" rev="{KAFKA_VERSION}"
                conf="default->default"/>
    <!-- what Kafka logs through, which it names as its user's choice -->
    <dependency org="org.apache.logging.log4j" name="log4j-slf4j-impl" rev="2.24.3"
                conf="default->default"/>
  </dependencies>
</ivy-module>
"""

_DIRECTORY: Final = f"kafka-{KAFKA_VERSION}"

_PAUSES: Final = (2.0, 5.0)
"""Seconds before the second and third try of a download."""

_TRY_SECONDS: Final = 600
"""How long one try may take; half a minute is usual for the 45 MB and their 90 descriptions."""


def fetch_kafka(java: Java) -> list[Path]:
    """Return the jars of Kafka's class path, downloading them the first time.

    Raises:
        LocalServiceError: If they are not in the cache and cannot be downloaded, or differ from
            the checksums that come with this package.
    """
    sums = checksums(files("kbackup.local").joinpath("kafka.sha256").read_text())
    return fetch_jars(java, _DIRECTORY, _WANTED, sums)


def fetch_jars(java: Java, name: str, wanted: str, sums: Mapping[str, str]) -> list[Path]:
    """Return jars of Kafka's version, downloading them the first time.

    Args:
        java: Runs Ivy.
        name: Of their directory in the cache.
        wanted: What to fetch, an Ivy module file.
        sums: Name to SHA-256 of all files that it stands for.

    Raises:
        LocalServiceError: If they are not in the cache and cannot be downloaded, or differ from
            *sums*.
    """
    directory = fetch_once(name, sums, lambda target: _download(java, target, wanted, sums))
    return [directory / jar for jar in sums]


def ivy_jar() -> Path:
    """Return the Ivy among the jars of PySpark, or of ``SPARK_HOME``, without importing PySpark.

    Raises:
        LocalServiceError: If there is none.
    """
    homes = []
    if (package := find_spec("pyspark")) is not None and package.origin is not None:
        homes.append(Path(package.origin).parent)
    if home := os.environ.get("SPARK_HOME"):
        homes.append(Path(home))
    for home_directory in homes:
        for jar in sorted(home_directory.glob("jars/ivy-*.jar")):
            return jar
    raise LocalServiceError(
        "no Ivy to download Kafka with",
        f"no jars/ivy-*.jar in {', '.join(map(str, homes)) or 'PySpark, which is not installed'}",
        "run: pip install pyspark",
    )


def _download(java: Java, target: Path, wanted: str, sums: Mapping[str, str]) -> None:
    """Put the jars into *target*; a try that fails leaves what it got to the next one."""
    with tempfile.TemporaryDirectory(prefix="kbackup-ivy-") as scratch:
        for pause in (*_PAUSES, 0.0):
            why = _try_download(java, target, wanted, Path(scratch))
            if not why and not damaged(target, sums):
                return
            why = why or f"missing or altered: {', '.join(damaged(target, sums))}"
            _logger.warning("Apache Kafka %s was not downloaded: %s", KAFKA_VERSION, why)
            time.sleep(pause)
    raise LocalServiceError(
        f"Apache Kafka {KAFKA_VERSION} is not in the cache and could not be downloaded",
        why,
        "connect to the network, or set HTTPS_PROXY, or, behind a proxy that signs TLS anew, "
        f"SSL_CERT_FILE; or copy {cache_directory() / _DIRECTORY} from a machine that has it",
    )


def _try_download(java: Java, target: Path, wanted: str, scratch: Path) -> str:
    """Run Ivy once; return why it failed in one line, or nothing."""
    module = scratch / "ivy.xml"
    module.write_text(wanted)
    command = [
        str(java.executable),
        *trust_store_options(),
        *proxy_options(),
        "-Dsun.net.client.defaultConnectTimeout=20000",
        "-Dsun.net.client.defaultReadTimeout=60000",
        f"-Divy.default.ivy.user.dir={scratch}/home",  # nothing of the user's own Ivy
        *("-cp", str(ivy_jar()), "org.apache.ivy.Main"),
        *("-m2compatible", "-cache", f"{scratch}/cache", "-ivy", str(module), "-confs", "default"),
        *("-types", "jar", "bundle"),
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
    """Return the line of Ivy's output that says most."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for mark in ("Server access error", "Host ", "Exception", "not found"):
        for line in lines:
            if mark in line:
                return line
    return lines[-1] if lines else "Ivy says nothing"
