"""A real Schema Registry on this machine: Apicurio Registry, which has Confluent's interface too.

It keeps its schemas in memory.  Its program is downloaded once into the user's cache; anything that
differs from ``registry.sha256`` is not run.

Unlike Confluent's, its global compatibility is NONE.
"""

import shutil
import tarfile
import tempfile
import urllib.error
import urllib.request
from importlib.resources import files
from pathlib import Path
from typing import Final

from kbackup.local import ivy
from kbackup.local.downloads import checksums
from kbackup.local.ivy import Download
from kbackup.local.java import Java, find_java
from kbackup.local.process import LocalService, Service, free_ports

REGISTRY_VERSION: Final = "3.0.9"
"""A new version needs a new ``registry.sha256``."""

START_SECONDS: Final = 90
"""How long a start may take; 4 s is usual on two idle cores."""

_MODULE: Final = f"""\
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="kbackup" module="local-registry"/>
  <dependencies>
    <dependency org="io.apicurio" name="apicurio-registry-app" rev="{REGISTRY_VERSION}">
      <artifact name="apicurio-registry-app" type="tar.gz" ext="tar.gz" m:classifier="all"/>
    </dependency>
  </dependencies>
</ivy-module>
"""

_DIRECTORY: Final = f"apicurio-registry-{REGISTRY_VERSION}"
_JVM_OPTIONS: Final = (
    "-Xmx128m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",  # the first compiler only, for a faster start
    "-XX:-UsePerfData",
)


class LocalRegistry(LocalService):
    """One registry on 127.0.0.1; it starts when created, and its schemas are gone when it stops.

    Args:
        java: The Java to run it on, 17 or newer; found if not given.

    Raises:
        JavaNotFoundError: If there is none.
        LocalServiceError: If it cannot be downloaded or does not start; the reason holds the last
            lines of its log.
    """

    def __init__(self, java: Java | None = None) -> None:
        java = java or find_java()
        archive = fetch_registry(java)
        self._directory = Path(tempfile.mkdtemp(prefix="kbackup-registry-"))
        try:
            with tarfile.open(archive) as packed:
                packed.extractall(self._directory, filter="data")
            [self._port] = free_ports(1)
            self._service = self._start(java)
        except BaseException:
            shutil.rmtree(self._directory, ignore_errors=True)
            raise

    @property
    def url(self) -> str:
        """Where Confluent's interface is."""
        return f"http://127.0.0.1:{self._port}/apis/ccompat/v7"

    def stop(self) -> None:
        """End it and remove what it held; may be repeated."""
        self._service.kill()  # an orderly shutdown would save nothing
        shutil.rmtree(self._directory, ignore_errors=True)

    def _start(self, java: Java) -> Service:
        program = self._directory / f"apicurio-registry-app-{REGISTRY_VERSION}-runner.jar"
        service = Service(
            f"Apicurio Registry on 127.0.0.1:{self._port}",
            [java.executable, *_JVM_OPTIONS, "-jar", program],
            self._directory / "registry.log",
            {"QUARKUS_HTTP_HOST": "127.0.0.1", "QUARKUS_HTTP_PORT": str(self._port)},
            scratch=self._directory,
        )
        service.wait_until(self._answers, START_SECONDS)
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
    sums = checksums(files("kbackup.local").joinpath("registry.sha256").read_text())
    program = f"Apicurio Registry {REGISTRY_VERSION}"
    wanted = Download(program, _DIRECTORY, _MODULE, sums, has_dependencies=False)
    [archive] = ivy.fetch_jars(java, wanted)
    return archive
