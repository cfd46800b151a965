"""Brokers unlike the one that all tests share: guarded, large, or one of two."""

import subprocess
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, Self

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from kbackup.local.kafka import LocalKafka
from kbackup.local.servers import free_ports
from tests.support.certificates import write_certificate

USER: Final = "keeper"
PASSWORD: Final = "p=a;s\"s w'ord"  # what a configuration file would have to quote


class SecureKafka(LocalKafka):
    """A broker with a plain listener, one for SCRAM over TLS, and one for OAuth tokens.

    Attributes:
        scram: Address of the listener with TLS.
        oauth: Address of the listener for tokens, which are not signed.
        authority: PEM file of the certificate's authority.
    """

    def __init__(self, folder: Path, session_ms: int = 0) -> None:
        """Start it.

        Args:
            folder: For its certificate.
            session_ms: How long a client's sign-in for tokens counts, at most as long as its
                token; 0: as long as its connection.
        """
        plain, scram, oauth, self._controller = free_ports(4)
        self.plain, self.scram, self.oauth = (f"127.0.0.1:{port}" for port in (plain, scram, oauth))
        self.authority = folder / "authority.pem"
        keys = folder / "keys.pem"
        write_certificate(self.authority, keys)
        module = "org.apache.kafka.common.security"
        super().__init__(
            {
                "listeners": f"PLAINTEXT://{self.plain},SCRAM://{self.scram},OAUTH://{self.oauth},"
                f"CONTROLLER://127.0.0.1:{self._controller}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,"
                "SCRAM:SASL_SSL,OAUTH:SASL_PLAINTEXT",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(keys),
                "listener.name.scram.sasl.enabled.mechanisms": "SCRAM-SHA-512",
                "listener.name.scram.scram-sha-512.sasl.jaas.config":
                    f"{module}.scram.ScramLoginModule required;",
                "listener.name.oauth.sasl.enabled.mechanisms": "OAUTHBEARER",
                "listener.name.oauth.oauthbearer.sasl.jaas.config":
                    f"{module}.oauthbearer.OAuthBearerLoginModule required "
                    'unsecuredLoginStringClaim_sub="broker";',
                "listener.name.oauth.oauthbearer.connections.max.reauth.ms": str(session_ms),
            }
        )  # fmt: skip

    def _quorum(self, controller: int) -> dict[str, str]:  # noqa: ARG002
        return super()._quorum(self._controller)

    def __enter__(self) -> Self:
        admin = AdminClient({"bootstrap.servers": self.plain})
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        wanted = [UserScramCredentialUpsertion(USER, info, PASSWORD.encode())]
        try:
            admin.alter_user_scram_credentials(wanted)[USER].result(30)
        except BaseException:
            self.stop()
            raise
        return super().__enter__()

    def properties(self, listener: str) -> Mapping[str, str]:
        """What a client of a listener, ``scram`` or ``oauth``, has to be told."""
        if listener == "scram":
            return {
                "security.protocol": "SASL_SSL",
                "ssl.ca.location": str(self.authority),
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.username": USER,
                "sasl.password": PASSWORD,
            }
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "enable.sasl.oauthbearer.unsecure.jwt": "true",
            # a token that lasts two seconds is renewed while a client works
            "sasl.oauthbearer.config": f"principal={USER} lifeSeconds=2",
        }


class LargeKafka(LocalKafka):
    """A broker that has memory for requests of nearly 1 GB, and takes them."""

    def __init__(self) -> None:
        size = "1000000000"
        limits = ("socket.request.max.bytes", "replica.fetch.max.bytes",
                  "replica.fetch.response.max.bytes")  # fmt: skip
        super().__init__(dict.fromkeys(limits, size))

    def _command(self, *arguments: str | Path) -> list[str | Path]:
        command = super()._command(*arguments)
        return ["-Xmx6g" if str(word).startswith("-Xmx") else word for word in command]


class UnfinishedKafka(LocalKafka):
    """A broker with what Kafka has only begun to have: groups of Streams, and share groups."""

    def __init__(self) -> None:
        names = ("unstable.api.versions.enable", "unstable.feature.versions.enable")
        super().__init__(dict.fromkeys(names, "true"))

    def _command(self, *arguments: str | Path) -> list[str | Path]:
        features = ("--feature", "streams.version=1", "--feature", "share.version=1")
        return super()._command(*arguments, *(features if "format" in arguments else ()))


class AnotherBroker(LocalKafka):
    """A broker that joins the cluster of a first one, which stays its controller.

    It stands in a rack of its own, named by its number, where the first one stands in one.
    """

    def __init__(self, first: LocalKafka, node: int = 2) -> None:
        self._first = first
        rack = {"broker.rack": f"{node}"} if "broker.rack" in first._own_properties else {}
        super().__init__({"node.id": f"{node}", "process.roles": "broker", **rack})

    def _prepare(self) -> None:
        """Write a configuration like the first one's, and format the data directory."""
        (self._port,) = free_ports(1)
        theirs = _properties(self._first._directory / "server.properties")
        mine = {
            **theirs,
            **self._own_properties,
            "listeners": f"PLAINTEXT://{self.bootstrap_servers}",
            "log.dirs": str(self.data_directory),
        }
        path = self._directory / "server.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in mine.items()))
        logging = self._first._directory / "log4j.properties"
        (self._directory / "log4j.properties").write_text(logging.read_text())
        cluster = _properties(self._first.data_directory / "meta.properties")["cluster.id"]
        subprocess.run(
            self._command(
                "kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", "--config", path
            ),
            check=True,
            capture_output=True,
        )


REPLICATED: Final = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "broker.rack": "1",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
}
"""Settings of a cluster of three brokers, each in its rack, that outlives any one of them."""


@contextmanager
def three_brokers() -> Iterator[tuple[LocalKafka, AnotherBroker, AnotherBroker]]:
    """Three brokers that replicate all they keep; the first one is their controller."""
    with LocalKafka(REPLICATED) as first, ExitStack() as others:
        with ThreadPoolExecutor() as pool:
            starting = [pool.submit(AnotherBroker, first, node) for node in (2, 3)]
        second, third = (others.enter_context(one.result()) for one in starting)
        yield first, second, third


def limit_consumers(kafka: LocalKafka, bytes_a_second: int) -> None:
    """Let the broker hold every consumer back to so many bytes a second."""
    subprocess.run(
        kafka._command(
            *("kafka.admin.ConfigCommand", "--bootstrap-server", kafka.bootstrap_servers),
            *("--alter", "--entity-type", "clients", "--entity-default"),
            *("--add-config", f"consumer_byte_rate={bytes_a_second}"),
        ),
        check=True,
        capture_output=True,
    )


def _properties(path: Path) -> dict[str, str]:
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    return {name: value for name, _, value in (line.partition("=") for line in lines)}
