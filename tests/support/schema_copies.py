"""A sink of records with schemas, and restores of its backup under a registry."""

from typing import Any

from kbackup.clock import SystemClock
from kbackup.events import Event, to_json
from kbackup.records import TopicPartition
from kbackup.restore.run import RestoreRun
from kbackup.runs.context import Environment, Stop
from kbackup.sink.run import SinkRun
from kbackup.stores import StoreSettings
from tests.support.configurations import load
from tests.support.fake_kafka import FakeKafka
from tests.support.registry import FakeRegistry
from tests.support.standby import Standby
from tests.support.telling import telling

NAME = {"type": "record", "name": "x.Name", "fields": [{"name": "n", "type": "string"}]}


PERSON = {"type": "record", "name": "x.Person", "fields": [{"name": "n", "type": "x.Name"}]}


def back_up(
    source: FakeRegistry | None,
    store: StoreSettings,
    *values: bytes,
    kafka: FakeKafka | None = None,
    topic: str = "orders",
) -> FakeKafka:
    """Back up full records of one topic with these values, new ones of *kafka*'s."""
    kafka = kafka or FakeKafka()
    where = TopicPartition(topic, 0)
    if where not in kafka.logs:
        kafka.create(topic, 0)
    end = kafka.logs[where].end_offset
    kafka.values |= {(where, end + at): value for at, value in enumerate(values)}
    kafka.append(where, len(values))
    given = {} if source is None else {"schema_registry_url": source.url}
    settings = load(
        "sink", bootstrap_servers="h:1", topics=topic, s3_bucket_name="b", no_lock=True, **given
    ).settings
    environment = Environment(kafka, store, Standby().tasks, SystemClock())  # type: ignore[arg-type]
    done = to_json(SinkRun(settings, lambda _: None, Stop(), environment)())
    assert done["records"] == len(values), done
    return kafka


class Copy:
    """Restores of the backup into one cluster, as ``copy_of_orders``."""

    def __init__(self, store: StoreSettings) -> None:
        self.standby, self.told = Standby(), list[Event]()
        self._store = store

    def restore(self, registry: str, **options: Any) -> dict[str, Any]:
        """Restore with a registry; return the summary."""
        self.told.clear()
        settings = load(
            "restore", bootstrap_servers="h:1", s3_bucket_name="b", no_lock=True,
            rename="copy_of_$0", **({"schema_registry_url": registry} if registry else {}),
            **options,
        ).settings  # fmt: skip
        standby = self.standby
        environment = Environment(standby.target, self._store, standby.tasks, standby.time)  # type: ignore[arg-type]
        return to_json(RestoreRun(settings, telling(self.told), Stop(), environment)())

    def values(self) -> list[bytes | None]:
        """The values of the copy."""
        return self.standby.target.values("copy_of_orders")

    def is_untouched(self) -> bool:
        """Whether no topic was created."""
        return not self.standby.target.logs
