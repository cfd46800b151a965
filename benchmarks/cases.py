"""What is measured: a name, what it runs, and how its own marks are read."""

import itertools
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from benchmarks import kafka_tools, loops
from benchmarks.peer import Peer
from benchmarks.process_tree import MeasuredCommandError, Usage, measure
from benchmarks.records import PROCESSES, Load
from benchmarks.services import STORES, Place, Services
from kbackup.stores import open_store

Row = dict[str, Any]

MASTER: Final = f"local[{PROCESSES},4]"

CLIENTS: Final = ("auto", "native", "python")
"""The ways of records between Kafka and kbackup, as ``kafka.client``: in batches, in columns, as
objects."""

BARE: Final = {"read": "consume loop", "write": "produce loop"}
"""Direction to the loop that its other cases are compared with."""

PEERS: Final = ("peer backup", "peer restore")


@dataclass(frozen=True, slots=True)
class Case:
    """One measurement that can be repeated.

    Attributes:
        name: What is measured.
        direction: ``read`` from Kafka or ``write`` to it.
        load: The records.
        store: Where the backup lies; empty where there is none.
        run: Measures once.
        client: One of `CLIENTS`; empty where it is not kbackup.
    """

    name: str
    direction: str
    load: Load
    store: str
    run: Callable[[], Row]
    client: str = ""

    @property
    def label(self) -> str:
        """What ``--only`` is compared with."""
        return " ".join(filter(None, (self.name, self.client, self.store, self.load.name)))


class Bench:
    """Makes the cases of one run, and keeps a backup of each load for the restores to read."""

    def __init__(
        self, services: Services, clients: Sequence[str] = CLIENTS, peer: Peer | None = None
    ) -> None:
        self._services = services
        self._clients = clients
        self._peer = peer
        self._filled: set[str] = set()
        self._kept: dict[tuple[str, str], Place] = {}
        self._restores = itertools.count()

    def cases(self, load: Load) -> Iterator[Case]:
        """Yield all cases of *load*."""
        peers = [] if self._peer is None else [self._peer]
        yield Case("consumer-perf", "read", load, "", partial(self._consumer_tool, load))
        yield Case("consume loop", "read", load, "", partial(self._consume_loop, load))
        for store, client in itertools.product(STORES, self._clients):
            run = partial(self._sink, load, store, client)
            yield Case("sink", "read", load, store, run, client)
        for store in STORES:
            run = partial(self._sink, load, store, "auto", "log")
            yield Case("sink log", "read", load, store, run, "auto")
        for side, store in itertools.product(("source", "target"), STORES):
            run = partial(self._against, side, load, store)
            yield Case(f"verify against {side}", "read", load, store, run)
        for peer, store in itertools.product(peers, STORES):
            run = partial(self._peer_backup, peer, load, store)
            yield Case(PEERS[0], "read", load, store, run)
        yield Case("producer-perf", "write", load, "", partial(self._producer_tool, load))
        yield Case("produce loop", "write", load, "", partial(self._produce_loop, load))
        for store, client in itertools.product(STORES, self._clients):
            run = partial(self._restore, load, store, client)
            yield Case("restore", "write", load, store, run, client)
        for store in STORES:
            run = partial(self._restore, load, store, "auto", "log")
            yield Case("restore log", "write", load, store, run, "auto")
        for peer, store in itertools.product(peers, STORES):
            run = partial(self._peer_restore, peer, load, store)
            yield Case(PEERS[1], "write", load, store, run)

    def _consumer_tool(self, load: Load) -> Row:
        self._fill(load)
        commands = kafka_tools.consumer(self._services.servers, load.topic, load)
        used = measure(commands, {})
        return row(load, used, kafka_tools.consumer_seconds(used.outputs))

    def _consume_loop(self, load: Load) -> Row:
        self._fill(load)
        used = measure(loops.commands("consume", self._services.servers, load.topic, load), {})
        return row(load, used, loops.seconds(used.outputs))

    def _producer_tool(self, load: Load) -> Row:
        return self._write(load, kafka_tools.producer, kafka_tools.producer_seconds)

    def _produce_loop(self, load: Load) -> Row:
        def commands(servers: str, topic: str, load: Load) -> list[list[str]]:
            return loops.commands("produce", servers, topic, load)

        return self._write(load, commands, loops.seconds)

    def _write(
        self,
        load: Load,
        commands: Callable[[str, str, Load], list[list[str]]],
        seconds: Callable[[list[str]], float],
    ) -> Row:
        topic = f"{load.topic}-written"
        self._services.create_topic(topic)
        try:
            used = measure(commands(self._services.servers, topic, load), {})
        finally:
            self._services.delete_topic(topic)
        return row(load, used, seconds(used.outputs))

    def _sink(self, load: Load, store: str, client: str, form: str = "") -> Row:
        self._fill(load)
        place = self._services.fresh_place(store)
        found = sink(self._services, load.topic, load, place, client, form)
        self._keep(load, store + form, place)
        return found

    def _restore(self, load: Load, store: str, client: str, form: str = "") -> Row:
        if (load.name, store + form) not in self._kept:
            self._sink(load, store, client, form)
        place = self._kept[load.name, store + form]
        topic = f"restored-{load.topic}"
        group = f"bench-restore-{next(self._restores)}"
        words = ["restore", "run", "--rename", "restored-$0", "--group", group]
        if load.codec != "none" and not form:  # batches have it from the topic
            words += ["-X", f"producer.override.compression.type={load.codec}"]
        try:
            return kbackup(self._services, words, load, place, client)
        finally:
            self._services.delete_topic(topic)

    def _against(self, side: str, load: Load, store: str) -> Row:
        """Measure a comparison of all records; with the target's, of a copy made for it."""
        if (load.name, store) not in self._kept:
            self._sink(load, store, "auto")
        place, topic = self._kept[load.name, store], f"restored-{load.topic}"
        verify = ["restore", "verify", "-t", load.topic, "--against", side]
        if side == "source":
            return kbackup(self._services, verify, load, place)
        words = ["--rename", "restored-$0", "--group", f"bench-restore-{next(self._restores)}"]
        try:
            kbackup(self._services, ["restore", "run", *words], load, place)
            return kbackup(self._services, [*verify, *words], load, place)
        finally:
            self._services.delete_topic(topic)

    def _peer_backup(self, peer: Peer, load: Load, store: str) -> Row:
        self._fill(load)
        place = self._services.fresh_place(store)
        storage = self._services.storage(place)
        used = measure([peer.backup(self._services.servers, load.topic, storage)], {})
        there = open_store(place.settings)
        _moved(load, peer.records(there))
        stored = sum(each.size for each in there.list(""))
        self._keep(load, store + peer.STORE, place)
        found = row(load, used, used.wall_s)
        return {**found, "stored_bytes": stored, "stored_mb": round(stored / 1e6, 1)}

    def _peer_restore(self, peer: Peer, load: Load, store: str) -> Row:
        if (load.name, store + peer.STORE) not in self._kept:
            self._peer_backup(peer, load, store)
        storage = self._services.storage(self._kept[load.name, store + peer.STORE])
        topic = f"restored-{load.topic}"
        self._services.create_topic(topic)
        command = peer.restore(self._services.servers, load.topic, topic, storage)
        try:
            used = measure([command], {})
            _moved(load, self._services.records(topic))
        finally:
            self._services.delete_topic(topic)
        return row(load, used, used.wall_s)

    def _keep(self, load: Load, store: str, place: Place) -> None:
        """Keep the first backup of each load and store for the restores; remove the others."""
        if (load.name, store) in self._kept:
            self._services.empty(place)
        else:
            self._kept[load.name, store] = place

    def _fill(self, load: Load) -> None:
        if load.name not in self._filled:
            self._services.fill(load)
            self._filled.add(load.name)


def sink(
    services: Services, topic: str, load: Load, place: Place, client: str = "auto", form: str = ""
) -> Row:
    """Measure a backup of *topic*, which holds the records of *load*."""
    words = ["sink", "run", "-t", topic, *(["-f", form] if form else [])]
    return kbackup(services, words, load, place, client)


def kbackup(
    services: Services, words: list[str], load: Load, place: Place, client: str = "auto"
) -> Row:
    """Measure a command of kbackup that must move all records of *load*."""
    command = [
        sys.executable, "-m", "kbackup", *words, *place.options,
        "-k", services.servers, "--kafka-client", client, "--master", MASTER, "--json",
    ]  # fmt: skip
    used = measure([command], services.environment)
    summary = json.loads(used.outputs[0].splitlines()[-1])
    _moved(load, summary["records"])
    timings = summary.get("timings", {})  # a comparison has none
    found = row(load, used, used.wall_s - timings.get("spark_start_s", 0))
    stored = summary["bytes_stored"] or summary["bytes_read"]
    return {
        **found,
        **timings,
        "task_cpu_us": _each(used.task_cpu_s * 1e6, load.records),
        "objects": summary["objects"],
        "stored_bytes": stored,
        "stored_mb": round(stored / 1e6, 1),
    }


def _moved(load: Load, records: int) -> None:
    if records != load.records:
        raise MeasuredCommandError(f"{load.records} records, but {records} were moved")


def _each(total: float, records: int) -> float | None:
    return round(total / records, 3) if records else None


def row(load: Load, used: Usage, seconds: float) -> Row:
    """Return one measurement; *seconds* is the time without what counts as start-up."""
    return {
        "records": load.records,
        "bytes": load.bytes,
        "wall_s": round(used.wall_s, 2),
        "seconds": round(seconds, 2),
        "cpu_s": round(used.cpu_s, 2),
        "peak_mib": round(used.peak_bytes / 2**20),
        "records_per_s": round(load.records / seconds),
        "mb_per_s": round(load.bytes / seconds / 1e6, 1),
    }
