"""Apache Kafka's own jars, fetched once into the user's cache.

``kafka.sha256`` lists every file with its checksum; a jar that is not in it is not run.
"""

from importlib.resources import files
from pathlib import Path
from typing import Final

from kbackup.local import ivy
from kbackup.local.downloads import checksums
from kbackup.local.ivy import Wanted
from kbackup.local.java import Java

KAFKA_VERSION: Final = "4.1.1"
"""A new version needs a new ``kafka.sha256``: the output of ``sha256sum *.jar`` over its files."""

_MODULE: Final = f"""\
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


def fetch_kafka(java: Java) -> list[Path]:
    """Return the jars of Kafka's class path, downloading them the first time.

    Raises:
        LocalServiceError: If they are not in the cache and cannot be downloaded, or differ from
            the checksums that come with this package.
    """
    sums = checksums(files("kbackup.local").joinpath("kafka.sha256").read_text())
    return ivy.fetch(java, Wanted(f"Apache Kafka {KAFKA_VERSION}", _DIRECTORY, _MODULE, sums))
