"""The same Kafka in a Docker container, on request."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

from kbackup.errors import LocalServiceError
from kbackup.local.kafka import BROKER_PROPERTIES, START_SECONDS, STARTED
from kbackup.local.kafka_jars import KAFKA_VERSION
from kbackup.local.process import LocalService, free_ports

IMAGE: Final = f"apache/kafka:{KAFKA_VERSION}"


class DockerKafka(LocalService):
    """`LocalKafka`'s interface over a container that testcontainers starts and cleans up.

    Args:
        properties: Lines of ``server.properties`` on top of ours.

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
            "run: pip install 'kbackup[docker]', or unset KBACKUP_KAFKA",
        ) from error
