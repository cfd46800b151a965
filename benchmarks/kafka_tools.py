"""Kafka's own performance tools, from a jar that the broker does without."""

import os
import re
import uuid
from typing import Final

from benchmarks.records import PROCESSES, Load
from kbackup.local import Java, find_java
from kbackup.local.downloads import KAFKA_VERSION, Download, fetch_jars, fetch_kafka

_SUMS: Final = {
    "kafka-tools-4.1.1.jar": "8a6939f310a61119cedaffc144119e9b2a374e32a7ec18f78e49ce5aeb71d6b0"
}

_MODULE: Final = f"""\
<ivy-module version="2.0">
  <info organisation="kbackup" module="kafka-tools"/>
  <dependencies>
    <!-- all it needs is among the broker's jars -->
    <dependency org="org.apache.kafka" name="kafka-tools" rev="{KAFKA_VERSION}"
                transitive="false" conf="default->default"/>
  </dependencies>
</ivy-module>
"""

_HEAP: Final = "-Xmx512m"  # what Kafka's scripts give their tools


def consumer(servers: str, topic: str, load: Load) -> list[list[str]]:
    """Return what to run side by side to read as many records as *load* has.

    Each process has a new group of its own and stops at its share, so none waits for the other,
    and none begins where an earlier one has committed.
    """
    return [
        [
            *tool("ConsumerPerformance"),
            "--bootstrap-server", servers, "--topic", topic, "--timeout", "60000",
            "--group", f"bench-tool-{uuid.uuid4()}",
            "--messages", str(load.records // PROCESSES),
        ]
        for _ in range(PROCESSES)
    ]  # fmt: skip


def consumer_seconds(outputs: list[str]) -> float:
    """Return the slowest process's time of fetching, as it measured it, start-up left out."""
    return max(float(_columns(output)["fetch.time.ms"]) / 1000 for output in outputs)


def producer(servers: str, topic: str, load: Load) -> list[list[str]]:
    """Return what to run side by side to write the records of *load*: values, and no more."""
    return [
        [
            *tool("ProducerPerformance"),
            "--topic", topic, "--num-records", str(load.records // PROCESSES),
            "--record-size", str(load.value_bytes), "--throughput", "-1",
            "--producer-props", f"bootstrap.servers={servers}", "linger.ms=20",
            f"batch.size={load.batch_bytes or 1048576}", "buffer.memory=67108864",
            f"compression.type={load.codec}",
        ]
        for _ in range(PROCESSES)
    ]  # fmt: skip


def producer_seconds(outputs: list[str]) -> float:
    """Return the slowest process's time of sending, as it measured it, start-up left out."""
    spent = []
    for output in outputs:
        *_, last = re.finditer(r"(\d+) records sent, ([\d.]+) records/sec", output)
        spent.append(int(last.group(1)) / float(last.group(2)))
    return max(spent)


def tool(main: str) -> list[str]:
    """Return how a tool of Kafka's is started, by the name of its class."""
    java: Java = find_java()
    name = f"kafka-tools-{KAFKA_VERSION}"
    tools = fetch_jars(java, Download(name, name, _MODULE, _SUMS))
    path = os.pathsep.join(map(str, [*tools, *fetch_kafka(java)]))
    return [str(java.executable), _HEAP, "-cp", path, f"org.apache.kafka.tools.{main}"]


def _columns(output: str) -> dict[str, str]:
    lines = [line for line in output.splitlines() if line.count(", ") > 5]
    names, values = (line.split(", ") for line in lines[-2:])
    return dict(zip((name.strip() for name in names), values, strict=True))
