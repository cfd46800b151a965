"""Record what brokers answer: ``python -m tests.recorded.make RELEASE...``, all if none is named.

A broker of each release is started on the loopback, a relay notes what passes while `write` and
`read` work, and ``kafka-RELEASE.txt`` is written anew.  Those before 3.7 are fetched into kbackup's
cache, and kept by ZooKeeper; it takes a minute each, and Java 17: later ones do not run them.
"""

import os
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import groupby
from pathlib import Path
from typing import Final
from unittest.mock import patch

from kbackup.kafka import produce
from kbackup.kafka.wire import CLIENT
from kbackup.local.downloads import RELEASES, Download, fetch_jars
from kbackup.local.java import find_java
from kbackup.local.kafka import _LOG4J_1, LocalKafka
from kbackup.local.servers import LocalServer, Service, free_ports
from kbackup.spark.java import Java
from tests.support.cluster import TestCluster
from tests.support.recorded import ADDRESS, FOLDER, Asked
from tests.support.recorded_broker import RECORDS, WHERE, NoPositions, read, write

OLD: Final = {
    "kafka_2.12-2.1.1": "3b1b1400cc3e895611a65f47df4095f7acd4db0b708bdbfa6dda48001e03fe46",
    "kafka_2.12-2.3.1": "fece60fdccbdd32edf07013bf82bc2cbc9b4415038c214080573b70066459f36",
    "kafka_2.13-2.4.1": "f6dc13eb031cf0a86858b980d7af15fe87c5084870201ecded97ee660b54a498",
    "kafka_2.13-2.6.3": "289324a0344a26c5a4989bca1f2cd85e8cbe13555110db991f04767839ddd15e",
    "kafka_2.13-2.8.2": "5e0fcbad2866367a25fc35bf9a0f4ba93fa774746b27de7f47b910427f9c95bc",
    "kafka_2.13-3.3.2": "54a78f19f2a07812a4b976b4ab18c7178efd3a1cc5e6e2a7844ed9734f672c94",
}
"""The main jar of each release, and its SHA-256."""

READS_BATCHES: Final = "2.3"
"""The first release whose batches can be read here."""

_MODULE: Final = """\
<ivy-module version="2.0">
  <info organisation="kbackup" module="recorded-kafka"/>
  <dependencies>
    <dependency org="org.apache.kafka" name="{name}" rev="{version}" conf="default->default"/>
    <dependency org="org.slf4j" name="slf4j-reload4j" rev="1.7.36" conf="default->default"/>
    <!-- earlier ones find nobody on Java 14 and later -->
    <dependency org="org.apache.zookeeper" name="zookeeper" rev="3.5.9" conf="default->default"/>
  </dependencies>
</ivy-module>
"""

_BROKER: Final = {
    "broker.id": "1",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "auto.create.topics.enable": "false",
}


class Relay:
    """Passes bytes between clients and a broker, and notes what one on record asks.

    Attributes:
        port: Where clients are to connect.
        broker: Where the broker is.
        noted: What was asked and answered, in order.
    """

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self.broker, self.is_recording = ("127.0.0.1", 0), False
        self.noted: list[tuple[Asked, bytes]] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._server.accept()
            threading.Thread(
                target=self._serve, args=(client, self.is_recording), daemon=True
            ).start()

    def _serve(self, client: socket.socket, is_noted: bool) -> None:
        """Pass on one request after the other: whoever is asked here answers in their order."""
        with client, suppress(OSError), socket.create_connection(self.broker) as broker:
            while request := _frame(client):
                broker.sendall(struct.pack(">i", len(request)) + request)
                answer = _frame(broker)
                client.sendall(struct.pack(">i", len(answer)) + answer)
                if is_noted:
                    self._note(request, answer)

    def _note(self, request: bytes, answer: bytes) -> None:
        kind, version, _, name = struct.unpack_from(">hhih", request)
        if request[10 : 10 + name] != CLIENT.encode():
            return  # brokers come by here too when they ask each other
        port = self.port.to_bytes(4, "big")
        answer = answer[4:].replace(ADDRESS + port, ADDRESS + bytes(4))
        self.noted.append(((kind, version, request[10 + name :]), answer))


def _frame(end: socket.socket) -> bytes:
    head = end.recv(4, socket.MSG_WAITALL)
    return end.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL) if head else b""


class ZooKeeper(LocalServer):
    """What brokers before 4.0 were kept by."""

    def __init__(self, command: Callable[..., list[str | Path]]) -> None:
        (self.port,) = free_ports(1)
        self._command = command
        super().__init__("kbackup-zookeeper-")

    def _prepare(self) -> None:
        lines = {
            "dataDir": self._directory, "clientPort": self.port, "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
        }  # fmt: skip
        (self._directory / "zoo.cfg").write_text("".join(f"{k}={v}\n" for k, v in lines.items()))

    def _start(self) -> Service:
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        command = self._command(main, self._directory / "zoo.cfg")
        service = Service("ZooKeeper", command, self._directory / "log", scratch=self._directory)
        service.wait_until(lambda: _listens(self.port), 60)
        return service


class OldKafka(LocalServer):
    """A broker of a release before 3.7."""

    def __init__(self, properties: Mapping[str, str], command: Callable[..., list[str | Path]]):
        (self.port,) = free_ports(1)
        self._properties, self._command = properties, command
        super().__init__("kbackup-old-kafka-")

    def _prepare(self) -> None:
        listener = {"listeners": f"PLAINTEXT://127.0.0.1:{self.port}", "log.dirs": self._directory}
        lines = {**_BROKER, **self._properties, **listener}.items()
        text = "".join(f"{name}={value}\n" for name, value in lines)
        (self._directory / "server.properties").write_text(text)

    def _start(self) -> Service:
        command = self._command("kafka.Kafka", self._directory / "server.properties")
        log = self._directory / "log"
        service = Service("Kafka", command, log, scratch=self._directory)
        service.wait_until(lambda: "] started" in log.read_text(), 60)
        return service


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


@contextmanager
def broker(release: str, advertised: Mapping[str, str], java: Java) -> Iterator[int]:
    """Start a broker; yield its port."""
    for known in RELEASES.values():
        if known.version == release:
            with LocalKafka(advertised, java, known) as kafka:
                yield int(kafka.bootstrap_servers.rpartition(":")[2])
            return
    (jar,) = (jar for jar in OLD if jar.endswith(f"-{release}"))
    module = _MODULE.format(name=jar.rpartition("-")[0], version=release)
    sums = {f"{jar}.jar": OLD[jar]}
    wanted = Download(f"Apache Kafka {release}", f"kafka-{release}-recorded", module, sums)
    (found,) = fetch_jars(java, wanted)
    jars = os.pathsep.join(map(str, sorted(found.parent.glob("*.jar"))))
    logging = found.parent / "log4j.properties"
    logging.write_text(_LOG4J_1.replace("KafkaRaftServer", "KafkaServer"))
    options = "-Xmx256m", "-XX:+UseSerialGC", "-Dzookeeper.jmx.log4j.disable=true"

    def command(*arguments: str | Path) -> list[str | Path]:
        named = f"-Dlog4j.configuration=file:{logging}"
        return [java.executable, *options, named, "-cp", jars, *arguments]

    with ZooKeeper(command) as keeper:
        kept = {"zookeeper.connect": f"127.0.0.1:{keeper.port}", **advertised}
        with OldKafka(kept, command) as old:
            yield old.port


def record(release: str) -> None:
    """Write the file of a release."""
    relay = Relay()
    servers = f"127.0.0.1:{relay.port}"
    with broker(release, {"advertised.listeners": f"PLAINTEXT://{servers}"}, find_java()) as port:
        relay.broker = "127.0.0.1", port
        TestCluster(servers).create(WHERE.topic)
        relay.is_recording = True
        write(servers)
        if release > READS_BATCHES:
            assert len(read(servers)) == len(RECORDS)
    lines = [
        f"{kind} {version} {request.hex()} {answer.hex()}\n"
        for ((kind, version, request), answer), _ in groupby(relay.noted)
    ]
    (FOLDER / f"kafka-{release}.txt").write_text("".join(lines))


if __name__ == "__main__":
    newer = [known.version for known in RELEASES.values()]
    with patch.object(produce, "WRITERS", NoPositions()):
        for each in sys.argv[1:] or [*(jar.rpartition("-")[2] for jar in OLD), *newer]:
            record(each)
