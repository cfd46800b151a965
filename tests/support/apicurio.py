"""A real Schema Registry in a process of its own: Apicurio.

It has Confluent's interface too, and keeps its schemas in memory.  Its program is downloaded once,
and anything that differs from ``registry.sha256`` is not run.  Unlike Confluent's, its global
compatibility is NONE.
"""

import tarfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

from kbackup.local.downloads import Download, checksums, fetch_jars
from kbackup.local.java import find_java
from kbackup.local.servers import LocalServer, Service, free_ports
from kbackup.spark.java import Java

REGISTRY_VERSION: Final = "3.0.9"
"""A new version needs a new ``registry.sha256``."""

_REGISTRY_START_S: Final = 90
"""How long a start may take; 4 s is usual on two idle cores."""

_REGISTRY_MODULE: Final = f"""\
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="kbackup" module="local-registry"/>
  <dependencies>
    <dependency org="io.apicurio" name="apicurio-registry-app" rev="{REGISTRY_VERSION}">
      <artifact name="apicurio-registry-app" type="tar.gz" ext="tar.gz" m:classifier="all"/>
    </dependency>
  </dependencies>
</ivy-module>
"""

_REGISTRY_DIRECTORY: Final = f"apicurio-registry-{REGISTRY_VERSION}"
_REGISTRY_JVM: Final = (
    "-Xmx128m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",  # the first compiler only, for a faster start
    "-XX:-UsePerfData",
)


class LocalRegistry(LocalServer):
    """One registry on 127.0.0.1; it starts when created, and its schemas are gone when it stops.

    Raises:
        JavaNotFoundError: If there is none.
        LocalServiceError: If it cannot be downloaded or does not start; the reason holds the last
            lines of its log.
    """

    def __init__(self, java: Java | None = None) -> None:
        self._java = java or find_java()
        self._archive = fetch_registry(self._java)
        super().__init__("kbackup-registry-")

    @property
    def url(self) -> str:
        """Where Confluent's interface is."""
        return f"http://127.0.0.1:{self._port}/apis/ccompat/v7"

    def _prepare(self) -> None:
        with tarfile.open(self._archive) as packed:
            packed.extractall(self._directory, filter="data")
        (self._port,) = free_ports(1)

    def _start(self) -> Service:
        program = self._directory / f"apicurio-registry-app-{REGISTRY_VERSION}-runner.jar"
        service = Service(
            f"Apicurio Registry on 127.0.0.1:{self._port}",
            [self._java.executable, *_REGISTRY_JVM, "-jar", program],
            self._directory / "registry.log",
            {"QUARKUS_HTTP_HOST": "127.0.0.1", "QUARKUS_HTTP_PORT": str(self._port)},
            scratch=self._directory,
        )
        service.wait_until(self._answers, _REGISTRY_START_S)
        return service

    def _answers(self) -> bool:
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with direct.open(f"{self.url}/subjects", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False


def fetch_registry(java: Java) -> Path:
    """Return the program's archive, downloading its 109 MB the first time.

    Raises:
        LocalServiceError: If it is not in the cache and cannot be downloaded, or differs from the
            checksum that comes with this package.
    """
    sums = checksums(Path(__file__).with_name("registry.sha256").read_text())
    program = f"Apicurio Registry {REGISTRY_VERSION}"
    wanted = Download(program, _REGISTRY_DIRECTORY, _REGISTRY_MODULE, sums, has_dependencies=False)
    [archive] = fetch_jars(java, wanted)
    return archive
