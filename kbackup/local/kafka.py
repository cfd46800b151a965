"""Start a real Apache Kafka on this machine, and remove its data at the end; Docker on request."""

import base64
import os
import subprocess
import uuid
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from kbackup.errors import LocalServiceError, with_extra
from kbackup.local.downloads import KAFKA_VERSION, Release, chosen, fetch_kafka
from kbackup.local.java import find_java
from kbackup.local.servers import LocalServer, LocalService, Service, free_ports
from kbackup.spark.java import Java

START_SECONDS: Final = 60
"""How long a start may take; 3 s is usual on two idle cores."""

STARTED: Final = "Kafka Server started"
"""What ``kafka.server.KafkaRaftServer`` logs once the broker serves requests."""

_JVM_OPTIONS: Final = (
    "-Xms128m",
    "-Xmx384m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",  # the first compiler only, for a faster start
    "-XX:-UsePerfData",
    "-Djava.awt.headless=true",
)

BROKER_PROPERTIES: Final = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "auto.create.topics.enable": "false",
    # a single node cannot replicate
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "3",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # after a crash, the controller readmits the broker once its old session has expired
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    # no other member will join
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    # tests of compaction, retention or a dead producer would otherwise wait for these
    "log.initial.task.delay.ms": "500",
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "log.retention.check.interval.ms": "1000",
    "log.segment.delete.delay.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    # room for a topic whose max.message.bytes is raised to 64 MiB
    "replica.fetch.max.bytes": "67108864",
    "replica.fetch.response.max.bytes": "67108864",
    "socket.request.max.bytes": "134217728",
}
"""Settings that make one node complete, and fast where a test waits."""

_LOG4J_1: Final = """\
log4j.rootLogger=WARN, stdout
log4j.logger.kafka.server.KafkaRaftServer=INFO
log4j.appender.stdout=org.apache.log4j.ConsoleAppender
log4j.appender.stdout.layout=org.apache.log4j.PatternLayout
log4j.appender.stdout.layout.ConversionPattern=%d{ISO8601} %p %c{1}: %m%n
"""

_LOG4J_2: Final = """\
appender.stdout.type = Console
appender.stdout.name = STDOUT
appender.stdout.layout.type = PatternLayout
appender.stdout.layout.pattern = %d{ISO8601} %p %c{1}: %m%n
rootLogger.level = WARN
rootLogger.appenderRef.stdout.ref = STDOUT
logger.server.name = kafka.server.KafkaRaftServer
logger.server.level = INFO
"""


class LocalKafka(LocalServer):
    """One Kafka node, combined broker and controller, on 127.0.0.1; it starts when created.

    A context manager that stops it.  It ends, and its data are removed, when the process that
    created it ends, however that ends; a signal to that process's group does not reach it.

    Args:
        properties: Lines of ``server.properties`` on top of ours.
        release: Which Kafka; the one that ``KBACKUP_KAFKA`` names if not given.

    Raises:
        JavaNotFoundError: If there is none.
        LocalServiceError: If it cannot be downloaded or does not start; the reason holds the last
            lines of its log.
    """

    def __init__(
        self,
        properties: Mapping[str, str] | None = None,
        java: Java | None = None,
        release: Release | None = None,
    ) -> None:
        self._java, self._release = java or find_java(), release or chosen()
        self._class_path = os.pathsep.join(map(str, fetch_kafka(self._java, self._release)))
        self._own_properties = dict(properties or {})
        super().__init__("kbackup-kafka-")

    @property
    def version(self) -> str:
        """Its version."""
        return self._release.version

    @property
    def bootstrap_servers(self) -> str:
        """``127.0.0.1`` and the port, the same after a `restart`."""
        return f"127.0.0.1:{self._port}"

    @property
    def log(self) -> Path:
        """The file with its output, warnings and worse; gone after `stop`."""
        return self._service.log

    @property
    def data_directory(self) -> Path:
        """The directory with its partitions' segments; gone after `stop`."""
        return self._directory / "data"

    def kill(self) -> None:
        """End it as a crash would (SIGKILL); `restart` continues with its data."""
        self._service.kill()

    def restart(self) -> None:
        """Start it again on the same port and data, ending it in good order if it runs.

        Raises:
            LocalServiceError: If it does not start, or was stopped.
        """
        self._service.stop()
        if not self._directory.exists():
            raise LocalServiceError("this Kafka was stopped", "its data is gone", "start a new one")
        self._service = self._start()

    def _prepare(self) -> None:
        """Choose ports, write the configuration, and format the data directory."""
        self._port, controller = free_ports(2)
        properties = {
            **BROKER_PROPERTIES,
            "listeners": f"PLAINTEXT://127.0.0.1:{self._port},CONTROLLER://127.0.0.1:{controller}",
            **self._quorum(controller),
            "log.dirs": str(self.data_directory),
            **self._own_properties,
        }
        lines = "".join(f"{name}={value}\n" for name, value in properties.items())
        (self._directory / "server.properties").write_text(lines)
        logging = _LOG4J_2 if self._release.has_log4j_2 else _LOG4J_1
        (self._directory / "log4j.properties").write_text(logging)
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        settings = ("--config", self._directory / "server.properties")
        done = subprocess.run(  # noqa: S603  (nothing in it comes from outside)
            self._command(
                *("kafka.tools.StorageTool", "format", f"--cluster-id={cluster}"),
                *(("--standalone",) if self._release.has_standalone else ()),
                *settings,
            ),
            check=False,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=START_SECONDS,
        )
        if done.returncode != 0:
            raise LocalServiceError(
                "Kafka's data directory could not be formatted", (done.stdout + done.stderr).strip()
            )

    def _quorum(self, controller: int) -> dict[str, str]:
        """Return how the node finds its controller, which is itself."""
        at = f"127.0.0.1:{controller}"
        if self._release.has_standalone:
            return {"controller.quorum.bootstrap.servers": at}
        return {"controller.quorum.voters": f"{BROKER_PROPERTIES['node.id']}@{at}"}

    def _start(self) -> Service:
        log = self._directory / "kafka.log"
        log.touch()
        seen = log.stat().st_size
        service = Service(
            f"Kafka on {self.bootstrap_servers}",
            self._command("kafka.Kafka", self._directory / "server.properties"),
            log,
            scratch=self._directory,
        )
        service.wait_until(lambda: STARTED in _read_from(log, seen), START_SECONDS)
        return service

    def _command(self, *arguments: str | Path) -> list[str | Path]:
        file = self._directory / "log4j.properties"
        logging = f"-Dlog4j.configuration=file:{file}"
        if self._release.has_log4j_2:
            logging = f"-Dlog4j2.configurationFile={file}"
        java = self._java.executable
        return [java, *_JVM_OPTIONS, logging, "-cp", self._class_path, *arguments]


def _read_from(path: Path, start: int) -> str:
    with path.open("rb") as file:
        file.seek(start)
        return file.read().decode(errors="replace")


IMAGE: Final = f"apache/kafka:{KAFKA_VERSION}"


class DockerKafka(LocalService):
    """`LocalKafka`'s interface over a container that testcontainers starts and cleans up.

    Raises:
        LocalServiceError: If testcontainers is not installed, Docker does not answer, or the
            broker does not start.
    """

    version: Final = KAFKA_VERSION

    def __init__(self, properties: Mapping[str, str] | None = None) -> None:
        (self._port,) = free_ports(1)
        containers, waiting = _testcontainers()
        try:
            self._container = containers.DockerContainer(IMAGE)
            # the port is chosen here, because the broker must advertise it to its clients
            self._container.with_bind_ports(9092, ("127.0.0.1", self._port))
            for name, value in self._properties(properties or {}).items():
                self._container.with_env(f"KAFKA_{name.upper().replace('.', '_')}", value)
            self._container.start()
            waiting.wait_for_logs(self._container, STARTED, timeout=START_SECONDS)
        except Exception as error:  # of Docker, of its client or of testcontainers
            raise LocalServiceError(
                "Kafka could not be started in Docker",
                str(error),
                "start Docker, or unset KBACKUP_KAFKA to run Kafka without it",
            ) from error

    @property
    def bootstrap_servers(self) -> str:
        """``127.0.0.1`` and the port, the same after a `restart`."""
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        """The broker's process id on the Docker host."""
        return int(self._state()["Pid"])

    @property
    def is_running(self) -> bool:
        """Whether the container runs."""
        return bool(self._state()["Running"])

    def stop(self) -> None:
        """End it and remove its data."""
        self._container.stop()

    def kill(self) -> None:
        """End it as a crash would (SIGKILL); `restart` continues with its data."""
        self._container.get_wrapped_container().kill()

    def restart(self) -> None:
        """Start it again on the same port and data, ending it in good order if it runs."""
        self._container.get_wrapped_container().restart()

    def _properties(self, own: Mapping[str, str]) -> dict[str, str]:
        return {
            **BROKER_PROPERTIES,
            "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap_servers}",
            "controller.quorum.voters": "1@localhost:9093",
            **own,
        }

    def _state(self) -> dict[str, Any]:
        container = self._container.get_wrapped_container()
        container.reload()
        return dict(container.attrs["State"])


def _testcontainers() -> tuple[Any, Any]:
    try:
        return (
            import_module("testcontainers.core.container"),
            import_module("testcontainers.core.waiting_utils"),
        )
    except ImportError as error:
        raise LocalServiceError(
            "Kafka could not be started in Docker",
            f"not installed: {error.name}",
            f"unset KBACKUP_KAFKA; or, for Docker, {with_extra('docker')}",
        ) from error
