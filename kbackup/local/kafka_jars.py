"""Apache Kafka's own jars, fetched once into the user's cache.

A ``.sha256`` file for each release lists every jar with its checksum; a jar that is not in it is
not run.
"""

import os
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Final

from kbackup.local import ivy
from kbackup.local.downloads import checksums
from kbackup.local.ivy import Wanted
from kbackup.local.java import Java

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
        version: Its version.
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
    def wanted(self) -> Wanted:
        """What to download."""
        organisation, name, revision = self.logger
        module = _MODULE.format(
            version=self.version, organisation=organisation, name=name, revision=revision
        )
        sums = checksums(files("kbackup.local").joinpath(self.sums).read_text())
        return Wanted(f"Apache Kafka {self.version}", f"kafka-{self.version}", module, sums)


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
    return ivy.fetch(java, release.wanted)
