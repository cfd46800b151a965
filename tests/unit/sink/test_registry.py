"""A topic under schemas of a registry, from Kafka to files of the connectors' layout."""

import io
from typing import Any, Final
from uuid import uuid4

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from backup_samples import batch, sink_job

from kbackup.connect.registry.framing import head_of
from kbackup.errors import KbackupError, RegistryError
from kbackup.formats import FormatOptions
from kbackup.naming import View
from kbackup.pipeline.convert import Compatibility
from kbackup.pipeline.rotate import Rule
from kbackup.pipeline.views import ViewSpec
from kbackup.records import Span, TopicPartition
from kbackup.sink.job import SinkUnit
from kbackup.sink.rejects import INTOLERANT, ErrorPolicy
from kbackup.sink.storing import TaskClients
from kbackup.sink.task import SinkPartitionTask
from kbackup.stores import StoreSettings
from kbackup.stores.memory import MemoryStore
from tests.support.fakes import FakePositions, FakeReader, SilentLine
from tests.support.registry import FakeRegistry

WHERE: Final = TopicPartition("orders", 0)
FIRST: Final = {
    "type": "record",
    "name": "x.Order",
    "fields": [{"name": "id", "type": "long"}],
}
SECOND: Final = {
    "type": "record",
    "name": "x.Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "n", "type": "string", "default": "-"}],
}
OPTIONS: Final = FormatOptions({"parquet.codec": "none"})


def value(schema_id: int, schema: Any, row: Any) -> bytes:
    """Return a value as a producer sends it."""
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(schema), row)
    return head_of(schema_id) + body.getvalue()


def log_of(*values: bytes) -> pa.RecordBatch:
    """Records with these values, keys too."""
    rows = batch(range(len(values)))
    column = pa.array(values, pa.binary())
    return rows.set_column(4, rows.schema.field("value"), column)


def work_of(
    log: pa.RecordBatch,
    registry: FakeRegistry,
    form: str,
    size: int = 100,
    compatibility: Compatibility = Compatibility.NONE,
    errors: ErrorPolicy = INTOLERANT,
) -> tuple[MemoryStore, SinkPartitionTask]:
    """Return a store, and the work that would fill it."""
    properties: dict[str, Any] = {
        "schema.registry.url": (registry.url,), "max.retries": 1, "retries.wait.ms": 0,
    }  # fmt: skip
    views = (ViewSpec(View.VALUE, form, OPTIONS, "avro", properties),)
    store = MemoryStore(StoreSettings(f"memory://{uuid4()}"))
    job = sink_job(views, rule=Rule(records=size, compatibility=compatibility), errors=errors)
    reader = FakeReader(log)
    unit = SinkUnit(WHERE, Span(0, reader.end_offset))
    clients = TaskClients(store, FakePositions(), reader)  # type: ignore[arg-type]
    return store, SinkPartitionTask(job, unit, clients, SilentLine())


def objects(store: MemoryStore) -> dict[str, bytes]:
    """Return what the store holds, by the end of its key."""
    found = {}
    for each in store.list("topics/"):
        with store.open(each.key) as body:
            found[each.key.rpartition("+")[2]] = body.read()
    return found


def test_avro_files_hold_the_records_under_their_schema(registry: FakeRegistry) -> None:
    """A file's schema has the record's name, and its version in the registry."""
    schema_id = registry.add("orders-value", FIRST)
    store, work = work_of(
        log_of(*(value(schema_id, FIRST, {"id": n}) for n in range(5))), registry, "avro", 3
    )

    work.run()

    files = {name: fastavro.reader(io.BytesIO(data)) for name, data in objects(store).items()}
    assert {
        "0000000000.avro": [{"id": 0}, {"id": 1}, {"id": 2}],
        "0000000003.avro": [{"id": 3}, {"id": 4}],
    } == {name: [*reader] for name, reader in files.items()}
    schema: Any = files["0000000000.avro"].writer_schema
    assert ("x.Order", 1) == (schema["name"], schema["connect.version"])
    assert 5 == work.report.committed


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_other_formats_hold_them_too(registry: FakeRegistry, form: str) -> None:
    """Values from a registry can be stored in every format that takes their columns."""
    schema_id = registry.add("orders-value", SECOND)
    row = {"id": 1, "n": "é"}
    store, work = work_of(log_of(value(schema_id, SECOND, row)), registry, form)

    work.run()

    [(_, data)] = objects(store).items()
    if form == "json":
        assert '{"id":1,"n":"é"}\n' == data.decode()
    else:
        assert [row] == pq.read_table(pa.BufferReader(data)).to_pylist()


def test_compatibility_goes_by_the_registrys_versions(registry: FakeRegistry) -> None:
    """Backward, an older record is brought under the newer schema of its file."""
    one, two = registry.add("orders-value", FIRST), registry.add("orders-value", SECOND)
    old, new = value(one, FIRST, {"id": 1}), value(two, SECOND, {"id": 2, "n": "b"})
    log = log_of(old, new, old, old)
    store, work = work_of(log, registry, "avro", compatibility=Compatibility.BACKWARD)

    work.run()

    files = objects(store)
    assert ["0000000000.avro", "0000000001.avro"] == sorted(files)
    assert [{"id": 2, "n": "b"}, {"id": 1, "n": "-"}, {"id": 1, "n": "-"}] == [
        *fastavro.reader(io.BytesIO(files["0000000001.avro"]))
    ]


@pytest.mark.parametrize(
    ("bad", "what"),
    [
        pytest.param(head_of(9) + b"\2", "names schema 9, which cannot be used", id="unknown id"),
        pytest.param(b"\1\0\0\0\1\2", "names no schema of a Schema Registry", id="magic byte"),
    ],
)
def test_a_bad_record_stops_the_partition_before_it(
    registry: FakeRegistry, bad: bytes, what: str
) -> None:
    """A record that cannot be decoded is named (exit 1), and what is before it is stored."""
    schema_id = registry.add("orders-value", FIRST)
    good = value(schema_id, FIRST, {"id": 1})
    store, work = work_of(log_of(good, good, bad, good), registry, "avro", 2)
    with pytest.raises(KbackupError) as caught:
        work.run()

    assert (1, 2) == (caught.value.exit_code, caught.value.place["offset"])
    assert f"orders-0 offset 2: a record {'is ' * ('under' in what)}{what}" == caught.value.what
    assert ["0000000000.avro"] == [*objects(store)]


@pytest.mark.parametrize("retry_s", [0.0, 600.0, -1.0])
def test_a_registry_is_asked_again_for_as_long_as_is_said(
    registry: FakeRegistry, retry_s: float
) -> None:
    """errors.retry.timeout goes beyond the registry's own retries; without it the run ends."""
    schema_id = registry.add("orders-value", FIRST)
    registry.script = [503] * 4  # two attempts, each with one retry of the client's
    policy = ErrorPolicy(retry_s=retry_s, longest_wait_s=0.001)
    log = log_of(value(schema_id, FIRST, {"id": 1}))
    _, work = work_of(log, registry, "avro", errors=policy)

    if retry_s:
        work.run()
    else:
        with pytest.raises(RegistryError, match="orders-0 offset 0"):
            work.run()

    assert (1 if retry_s else 0) == work.report.done.records


@pytest.mark.parametrize(
    ("attempt", "waited_s", "expected"),
    [(1, 0.0, 0.3), (2, 1.0, 0.6), (9, 1.0, 5.0), (9, 8.0, 2.0), (9, 10.0, None)],
    ids=["first", "doubled", "longest", "what is left", "over"],
)
def test_waits_double_up_to_the_longest(
    attempt: int, waited_s: float, expected: float | None
) -> None:
    """Retries double their waits up to the longest, and the last one ends with the timeout."""
    policy = ErrorPolicy(retry_s=10.0, longest_wait_s=5.0)

    assert policy.wait_s(attempt, waited_s, 0.0) == expected
