"""What is measured against: one broker, one S3 server, one folder, and what lies in them.

The servers' own CPU time and memory count for nobody.
"""

import itertools
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from benchmarks import loops
from benchmarks.gateway import s3_server
from benchmarks.process_tree import measure
from benchmarks.records import PARTITIONS, Load
from kbackup.inspect.host import keep_classes
from kbackup.local import find_java
from kbackup.local.kafka import LocalKafka
from kbackup.local.servers import LocalService
from kbackup.stores import Store, StoreSettings, open_store

STORES: Final = ("s3", "dir")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a backup lies.

    Attributes:
        store: One of `STORES`.
        name: Of the bucket, or the folder's path.
        options: What tells kbackup.
        settings: What tells our own store, to clean up.
    """

    store: str
    name: str
    options: tuple[str, ...] = field(compare=False)
    settings: StoreSettings = field(compare=False)


class Services(LocalService):
    """The servers, a context manager that ends them and removes all they held."""

    def __init__(self) -> None:
        keep_classes(find_java())  # as on every machine whose doctor was asked
        self._count = itertools.count()
        self._folder = Path(tempfile.mkdtemp(prefix="kbackup-bench-"))
        self.kafka = LocalKafka()
        self.s3 = s3_server()
        self._admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})

    @property
    def servers(self) -> str:
        """The broker's address."""
        return self.kafka.bootstrap_servers

    @property
    def environment(self) -> dict[str, str]:
        """What commands need to reach the S3 server."""
        return self.s3.environment

    @property
    def scratch(self) -> Path:
        """A folder for the run's own files, removed with all else."""
        return self._folder

    def folder(self, place: Place) -> Path:
        """Return where a backup in a folder lies."""
        return self._folder / place.name

    def storage(self, place: Place) -> dict[str, object]:
        """Return how the peer is told where a backup lies."""
        if place.store == "dir":
            return {"backend": "filesystem", "path": str(self.folder(place))}
        return {
            "backend": "s3", "bucket": place.name, "prefix": "peer", "region": self.s3.region,
            "endpoint": self.s3.endpoint_url, "path_style": True, "allow_http": True,
            "access_key": self.s3.access_key_id, "secret_key": self.s3.secret_access_key,
        }  # fmt: skip

    def fresh_place(self, store: str) -> Place:
        """Return an empty bucket or folder."""
        name = f"bench-{next(self._count)}"
        if store == "dir":
            folder = self._folder / name
            folder.mkdir()
            url = folder.as_uri()
            return Place(store, name, ("--store-url", url), StoreSettings(url))
        self.s3.create_bucket(name)
        options = {
            "aws.access.key.id": self.s3.access_key_id,
            "aws.secret.access.key": self.s3.secret_access_key,
            "s3.region": self.s3.region,
        }
        settings = StoreSettings(f"s3://{name}", self.s3.endpoint_url, options)
        return Place(store, name, ("--store-url", self.s3.endpoint_url, "-b", name), settings)

    def empty(self, place: Place) -> None:
        """Remove a backup."""
        if place.store == "dir":
            shutil.rmtree(self.folder(place))
            return
        store: Store = open_store(place.settings)
        for found in list(store.list("")):
            store.delete(found.key)

    def create_topic(self, name: str, partitions: int = PARTITIONS) -> None:
        """Make a topic."""
        self.create_topics({name: partitions})

    def create_topics(self, topics: Mapping[str, int]) -> None:
        """Make topics, each with so many partitions."""
        config = {"retention.ms": "-1"}  # the records' timestamps are as old as they like
        new = [NewTopic(name, count, 1, config=config) for name, count in topics.items()]
        for future in self._admin.create_topics(new).values():
            future.result()
        for name, count in topics.items():
            while not self._has_leaders(name, count):
                time.sleep(0.1)

    def delete_topic(self, name: str) -> None:
        """Remove a topic and wait until it is gone."""
        self.delete_topics([name])

    def delete_topics(self, names: Sequence[str]) -> None:
        """Remove topics and wait until they are gone."""
        for future in self._admin.delete_topics(list(names)).values():
            future.result()
        while not self._admin.list_topics(timeout=10).topics.keys().isdisjoint(names):
            time.sleep(0.1)

    def records(self, topic: str) -> int:
        """Return the sum of the partitions' end offsets."""
        found = self._admin.describe_topics(TopicCollection([topic]))[topic].result()
        ends = {TopicPartition(topic, each.id): OffsetSpec.latest() for each in found.partitions}
        return sum(each.result().offset for each in self._admin.list_offsets(ends).values())

    def fill(self, load: Load) -> None:
        """Write the records of *load* to its topic."""
        self.create_topic(load.topic)
        measure(loops.commands("produce", self.servers, load.topic, load), {})

    def stop(self) -> None:
        """End the servers and remove what they held."""
        self.s3.stop()
        self.kafka.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _has_leaders(self, name: str, partitions: int) -> bool:
        try:
            found = self._admin.list_topics(name, timeout=10).topics[name].partitions
        except (KafkaException, KeyError):
            return False
        return len(found) == partitions and all(at.leader >= 0 for at in found.values())
