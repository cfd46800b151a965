"""Start Kafka and an S3 server on this machine, for the demo and the tests; find a Java.

Nothing is installed: jars go into the user's cache, data into temporary directories.  Each server
listens on 127.0.0.1 only and ends when the process that started it ends, even if that was killed.
Only the command line, tests and benchmarks import this package.
"""

import os
from collections.abc import Mapping

from kbackup.errors import ConfigurationError
from kbackup.local.downloads import RELEASES
from kbackup.local.java import find_java
from kbackup.local.kafka import DockerKafka, LocalKafka
from kbackup.local.servers import LocalS3
from kbackup.spark.java import Java

__all__ = [
    "DockerKafka", "Java", "LocalKafka", "LocalS3", "find_java", "start_kafka",
]  # fmt: skip


def start_kafka(properties: Mapping[str, str] | None = None) -> LocalKafka | DockerKafka:
    """Start a Kafka node: from jars, or in Docker with ``KBACKUP_KAFKA=docker``.

    ``KBACKUP_KAFKA`` can also name one of the `RELEASES` to run from jars, such as ``3.7``.

    Raises:
        ConfigurationError: If ``KBACKUP_KAFKA`` is none of these.
        JavaNotFoundError: If there is no Java to run the jars on.
        LocalServiceError: If it cannot be downloaded or started.
    """
    match os.environ.get("KBACKUP_KAFKA") or "jars":
        case "jars":
            return LocalKafka(properties)
        case "docker":
            return DockerKafka(properties)
        case other:
            if other in RELEASES:
                return LocalKafka(properties)
            raise ConfigurationError(
                f"KBACKUP_KAFKA is {other!r}",
                f"it is none of jars, docker, {', '.join(RELEASES)}",
                "unset it",
            )
