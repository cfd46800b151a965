"""A scenario of the real connector in a real cluster and bucket: its topic, its sink, its restore.

Keys of objects hold the topic's name, so a scenario has its topics for itself while it runs.
"""

import base64
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any, Final, NamedTuple

from object_content import TaskChannel, content
from scenario_files import BYTES, STRING, Given, Scenario, each_value, is_decimal, plain, raw

from kbackup.events import to_json
from tests.integration.product import (
    Environment,
    Event,
    LocalS3,
    RestoreRun,
    Settings,
    SinkRun,
    Stop,
    SystemClock,
    loading,
    wiring,
)
from tests.support.cluster import Record, TestCluster
from tests.support.in_turn import InTurn
from tests.support.placing import place

_DELIM: Final = "directory.delim"


def sent(data: Any, converter: dict[str, str], part: str) -> bytes | None:
    """Return the bytes that a producer with this converter sends."""
    if data is None:
        return None
    if converter.get(part) == BYTES:
        return raw(data)
    if converter.get(part) == STRING:
        return str(data.get("payload", data.get("$schemaless"))).encode()
    payload = data.get("payload", data.get("$schemaless"))
    if converter.get(f"{part}.schemas.enable", "true") == "true":
        payload = {"schema": data.get("schema"), "payload": payload}
    return json.dumps(payload).encode()


def header(data: Any) -> bytes | None:
    """Return a header's bytes: text for every type but bytes."""
    if data is None:
        return None
    if "$bytes" in data:
        return base64.b64decode(data["$bytes"])
    return str(data.get("payload", data.get("$schemaless"))).encode()


class Same(NamedTuple):
    """A record in a form that is equal where the record is, its schema left out."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    def within(self, other: "Same") -> "Same":
        """Return it without the fields that *other* does not have."""
        own, others = json.loads(self.value or b"{}"), json.loads(other.value or b"{}")
        return self._replace(value=form({name: own[name] for name in own if name in others}))


def form(data: Any) -> bytes:
    """Return data as bytes that are equal where it is."""
    return json.dumps(data, sort_keys=True, default=str).encode()


def parsed(text: bytes) -> Any:
    """Return JSON with numbers that are equal where they are, however they are spelt."""
    return json.loads(text, parse_float=lambda digits: number_of(Decimal(digits)))


def number_of(value: Decimal) -> str:
    """Return what is equal for equal numbers, and for no text."""
    return f"\0{value.normalize()}"


def meant(data: Any, *, numeric: bool = False) -> bytes | None:
    """Return what the connector was given in the same form; a null of JSON becomes a tombstone.

    Args:
        data: A key or value.
        numeric: Decimals are numbers in it.
    """
    if data is None:
        return None
    if (found := raw(data)) is not None:
        return found
    payload = data.get("payload", data.get("$schemaless"))
    if numeric and data.get("schema") is not None:
        payload = each_value(data["schema"], payload, _number)
    return None if payload is None else form(parsed(json.dumps(payload, default=str).encode()))


def _number(schema: Any, value: Any) -> Any:
    """Return a Decimal as the number that `parsed` makes of it, anything else as it is."""
    if not is_decimal(schema):
        return value
    scale = int(schema["parameters"]["scale"])
    unscaled = int.from_bytes(base64.b64decode(value), "big", signed=True)
    if scale <= 0:
        return unscaled * 10**-scale
    with localcontext(prec=1000):
        return number_of(Decimal(unscaled).scaleb(-scale))


def text(data: Any) -> bytes | None:
    """Return what a restore makes of a header: text, or the base64 of bytes that are none."""
    found = header(data)
    try:
        (found or b"").decode()
    except UnicodeDecodeError:
        return base64.b64encode(found or b"")
    return found


@dataclass(frozen=True)
class Bench:
    """Where a scenario is run."""

    scenario: Scenario
    cluster: TestCluster  # the Kafka
    s3: LocalS3  # the S3 server
    bucket: str  # A fresh bucket, whose name is the group's too
    folder: Path  # where the connector's file is written

    @property
    def topics(self) -> list[str]:
        """The scenario's topics."""
        return sorted({record.topic for record in self.scenario.given})

    def target(self, topic: str) -> str:
        """The topic that a restore writes to."""
        return f"{self.bucket}_of_{topic}"

    def record(self, given: Given) -> Record:
        """Return what was in Kafka for what the connector was given."""
        converter = {**self.scenario.config, **self.scenario.converters}
        return Record(
            sent(given.key, converter, "key.converter"),
            sent(given.value, converter, "value.converter"),
            tuple((each["key"], header(each["value"])) for each in given.headers),
            given.timestamp,
        )

    @contextmanager
    def topics_written(self) -> Iterator[None]:
        """Make the scenario's topics with its records at their offsets; delete them at the end."""
        records = self.scenario.given
        wheres = sorted({(one.topic, one.partition) for one in records})
        there = self.cluster.admin.list_topics(timeout=10).topics
        for topic in self.topics:
            if topic in there:
                self.cluster.delete(topic)
            self.cluster.create(topic, max(n for name, n in wheres if name == topic) + 1)
        try:
            for where in wheres:
                own = [one for one in records if (one.topic, one.partition) == where]
                place(self.cluster, *where, [(one.offset, self.record(one)) for one in own])
            yield
        finally:
            for topic in self.topics:
                self.cluster.delete(topic)

    def sink(self) -> Event:
        """Back up the topics under the connector's file, its cuts kept; return the summary."""
        settings = self.settings(
            "sink", topics=",".join(self.topics), flush_on_stop=False, group=self.bucket
        )
        return to_json(SinkRun(settings, lambda _: None, Stop(), _world(settings))())

    def restore(self) -> Event:
        """Restore the bucket under the connector's file; return the summary."""
        rename = self.target("$0")
        settings = self.settings("restore", rename=rename, yes_split_on_newline=True)
        return to_json(RestoreRun(settings, lambda _: None, Stop(), _world(settings))())

    def committed(self) -> dict[tuple[str, int], int]:
        """Return the group's offsets, 0 where there is none."""
        wheres = {(one.topic, one.partition) for one in self.scenario.given}
        return {
            (topic, partition): max(0, *self.cluster.committed(self.bucket, topic, [partition]))
            for topic, partition in wheres
        }

    def filled_targets(self) -> set[tuple[str, int]]:
        """Return the partitions in which a restore has written, as of their originals."""
        return {
            (topic, partition)
            for topic in self.topics
            for partition, end in enumerate(self.cluster.end_offsets(self.target(topic)))
            if end
        }

    def restored(self, topic: str, partition: int) -> list["Same"]:
        """Return what is in a partition of a restored topic."""
        return [
            Same(
                None if one.key is None else self._form("key.converter", one.key),
                None if one.value is None else self._form("value.converter", one.value),
                one.headers,
            )
            for one in self.cluster.read(self.target(topic), partition)
        ]

    def expected(self, topic: str, partition: int, end: int) -> list["Same"]:
        """Return what a restore of the records below *end* has to write, but for timestamps.

        Without stored keys and headers there are none; headers are text.
        """
        has_keys = self.scenario.config.get("store.kafka.keys") == "true"
        has_headers = self.scenario.config.get("store.kafka.headers") == "true"
        numeric = self.scenario.config.get("json.decimal.format", "").upper() == "NUMERIC"
        keeps_null = self.scenario.config.get("behavior.on.null.values", "").lower() != "ignore"
        return [
            Same(
                meant(one.key, numeric=numeric) if has_keys else None,
                meant(one.value, numeric=numeric),
                tuple((each["key"], text(each["value"])) for each in one.headers)
                if has_headers
                else (),
            )
            for one in self.scenario.given
            if (one.topic, one.partition) == (topic, partition) and one.offset < end
            if keeps_null or meant(one.value) is not None
        ]

    def directories(
        self, topic: str, partition: int, objects: Mapping[str, bytes]
    ) -> dict[str, list[bytes]]:
        """Return the values in each directory of a partition, in the order of its objects.

        Tombstones have no values, so their directory is not among them.
        """
        delim = self.scenario.config.get("file.delim", "+")
        found: dict[str, list[bytes]] = {}
        for key in sorted(objects):
            directory, own, name = key.rpartition(f"{topic}{delim}{partition}{delim}")
            is_own = bool(own) and directory.endswith(("/", self.scenario.config.get(_DELIM, "/")))
            if is_own and ".keys." not in name and ".headers." not in name:
                rows = content(key, objects[key]).rows
                values = found.setdefault(directory, [])
                texts = [
                    r.text
                    if isinstance(r, TaskChannel)
                    else json.dumps(plain(r), default=str).encode()
                    for r in rows
                ]
                values += [form(parsed(text)) for text in texts]
        return found

    @property
    def closes_earlier(self) -> bool:
        """Whether files close before a key comes again whose tombstone is in them.

        The connector keeps them open, and so loses the order of that key's records.
        """
        if self.scenario.config.get("behavior.on.null.values", "").lower() != "write":
            return False
        keys = [
            (one.topic, one.partition, json.dumps(one.key))
            for one in self.scenario.given
            if one.value is None
        ]
        again = Counter(
            (one.topic, one.partition, json.dumps(one.key)) for one in self.scenario.given
        )
        return any(again[key] > 1 for key in keys)

    @property
    def is_projected(self) -> bool:
        """Whether a file gives older records the fields of a newer schema."""
        return self.scenario.config.get("schema.compatibility", "NONE").upper() != "NONE"

    @property
    def is_split(self) -> bool:
        """Whether nothing in a file tells where a value ends."""
        return self._converter("value.converter") == BYTES

    def _converter(self, part: str) -> str | None:
        return {**self.scenario.config, **self.scenario.converters}.get(part)

    def _form(self, part: str, data: bytes) -> bytes:
        if self._converter(part) == BYTES:
            return data
        if self._converter(part) == STRING:
            return form(data.decode())
        found = parsed(data)
        is_whole = isinstance(found, dict) and found.keys() == {"schema", "payload"}
        return form(found["payload"] if is_whole else found)

    def settings(self, command: loading.Command, **options: Any) -> Settings:
        """Return what kbackup makes of the connector's file, with this bucket.

        Raises:
            ConfigurationError: If it refuses a property.
        """
        path = self.folder / "connector.json"
        path.write_text(
            json.dumps(
                self.scenario.config
                | self.scenario.converters
                | {
                    "s3.bucket.name": self.bucket,
                    "store.url": self.s3.endpoint_url,
                    "aws.access.key.id": self.s3.access_key_id,
                    "aws.secret.access.key": self.s3.secret_access_key,
                }
            )
        )
        given = {"bootstrap_servers": self.cluster.servers, **options}
        return loading.load(command, options=given, files=[path], environ={}).settings


def _world(settings: Settings) -> Environment:
    """Return the cluster and the bucket of *settings*, with tasks in this process."""
    return Environment(
        wiring.kafka_settings(settings), wiring.store_settings(settings), InTurn(), SystemClock()
    )
