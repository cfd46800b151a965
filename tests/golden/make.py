"""Make the golden files of version 1: ``python -m tests.golden.make``, once, into an empty folder.

Each layout is a bucket that two runs of a sink have written, and a third that died before its
commit: its objects are there, and neither position nor ledger speaks of them.  Beside the bucket,
``said.json`` has the positions that the sink committed, those of a restore of what the first two
runs have stored, what the target held then, and the records of the source.

They are never made again: a change that cannot read them breaks the backups of others.
"""

import json
import sys
from pathlib import Path
from typing import Any, Final

from backup_samples import Backup

from kbackup.catalog import identity
from kbackup.clock import SystemClock
from kbackup.events import to_json
from kbackup.kafka import Position
from kbackup.records import TopicPartition
from kbackup.runs import wiring
from kbackup.runs.context import Environment, Stop
from kbackup.sink.run import SinkRun
from tests.support.configurations import load
from tests.support.fake_kafka import FakeKafka
from tests.support.in_turn import InTurn
from tests.support.target import FakeTarget, Restoring

FOLDER: Final = Path(__file__).parent / "v1"
WHERE: Final = TopicPartition("orders", 0)
COPY: Final = TopicPartition("copy_of_orders", 0)
LAYOUTS: Final[dict[str, dict[str, Any]]] = {
    "records": {},
    "bytes": {"format_class": "bytes"},
    "values": {
        "format_class": "json", "value_converter_schemas_enable": False,
        "store_kafka_keys": True, "keys_format_class": "json", "store_kafka_headers": True,
        "headers_format_class": "json", "behavior_on_null_values": "ignore",
        "key_converter": "org.apache.kafka.connect.storage.StringConverter",
    },
}  # fmt: skip
"""What a sink is given for each."""


def settings(name: str, url: str) -> Any:
    """Return what the sink of a layout goes by."""
    given = {
        "bootstrap_servers": "h:1", "store_url": url, "no_lock": True, "topics": "orders",
        "flush_size": 4, "group": "golden", **LAYOUTS[name],
    }  # fmt: skip
    return load("sink", **given).settings


def restoring(name: str, backup: Backup) -> Restoring:
    """Return a restore of a layout into an empty cluster."""
    found = Restoring(backup=backup, cluster=FakeTarget())
    address = wiring.address(settings(name, backup.settings.url)).address
    found.identity = identity.read(backup.store, backup.layout, address)
    return found


def reading(name: str) -> Any:
    """Return how the objects of a layout are read."""
    named = ("format_class", "value_converter_schemas_enable", "key_converter")
    given = {key: LAYOUTS[name][key] for key in named if key in LAYOUTS[name]}
    loaded = load("restore", bootstrap_servers="h:1", s3_bucket_name="b", **given)
    return wiring.reading(loaded.settings)


def stand(positions: dict[TopicPartition, Position]) -> list[list[Any]]:
    """Return positions as plain data."""
    return [[at.topic, at.partition, one.offset, one.metadata] for at, one in positions.items()]


def text(part: bytes | None) -> str | None:
    """Return a part of a record as JSON has it."""
    return None if part is None else part.decode()


def make(name: str, folder: Path) -> None:
    """Make one layout."""
    backup = Backup.in_folder(folder / "store")
    kafka = FakeKafka()
    kafka.create("orders", 0)
    asked = settings(name, backup.settings.url)

    def sink() -> None:
        environment = Environment(kafka, backup.settings, InTurn(), SystemClock())  # type: ignore[arg-type]
        summary = to_json(SinkRun(asked, lambda _: None, Stop(), environment)())
        assert summary["exit_code"] in (0, 3), summary

    def write(count: int) -> None:
        kafka.append(WHERE, count)
        log = kafka.logs[WHERE]
        for at in range(log.end_offset - count, log.end_offset):
            kafka.keys[WHERE, at] = None if name == "bytes" else b"key-%d" % (at % 3)
            kafka.values[WHERE, at] = b'{"n":%d}' % at
            if name == "records" and at % 5 == 4:
                kafka.values[WHERE, at] = None

    write(6)
    sink()
    write(5)
    sink()
    committed = dict(kafka.positions_)
    ledger = {one.key for one in backup.store.list("_kbackup/")}
    half = restoring(name, backup)
    half.restore(reading=reading(name))
    ((group, positions),) = half.cluster.groups.items()
    target = half.cluster.logs[COPY]
    write(3)
    sink()
    for one in [*backup.store.list("_kbackup/")]:  # it died before it entered and committed them
        if one.key not in ledger:
            backup.store.delete(one.key)
    records = [
        [text(kafka.keys[WHERE, at]), text(kafka.values[WHERE, at])]
        for at in range(kafka.logs[WHERE].end_offset)
    ]
    said = {
        "committed": stand(committed),
        "group": group,
        "restored": stand(positions),
        "target_id": half.cluster.ids[COPY.topic],
        "target_rows": len(target.rows),
        "records": records,
    }
    (folder / "said.json").write_text(json.dumps(said, indent=1) + "\n")


if __name__ == "__main__":
    for each in sys.argv[1:] or LAYOUTS:
        (FOLDER / each / "store").mkdir(parents=True)
        make(each, FOLDER / each)
