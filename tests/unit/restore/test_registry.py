"""Values under schemas of a registry, put back under those of the target's."""

import io
from dataclasses import replace
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from backup_samples import Backup, batch

from kbackup.catalog import listing
from kbackup.catalog.claims import Reading
from kbackup.catalog.reading import read
from kbackup.connect.registry.framing import head_of
from kbackup.errors import RegistryError
from kbackup.formats import FormatOptions
from kbackup.naming import View
from kbackup.pipeline.views import ReadOptions, ViewSpec
from tests.support.registry import FakeRegistry
from tests.support.target import MARKER, Restoring

ORDER: Any = {
    "type": "record",
    "name": "x.Order",
    "fields": [{"name": "id", "type": "long"}],
}


def datum(value: Any) -> bytes:
    """Return a value as Avro."""
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(ORDER), value)
    return body.getvalue()


@pytest.fixture
def backup() -> Backup:
    """Two orders that a sink stored with the converter of the source's registry."""
    made = Backup()
    with FakeRegistry() as source:
        schema_id = source.add("orders-value", ORDER)
        rows = batch(range(2))
        values = [head_of(schema_id) + datum({"id": at}) for at in range(2)]
        rows = rows.set_column(4, rows.schema.field("value"), pa.array(values, pa.binary()))
        properties = {"schema.registry.url": source.url}
        made.put(
            "orders", 0, rows,
            views=(ViewSpec(View.VALUE, "avro", FormatOptions(), "avro", properties),),
        )  # fmt: skip
    return made


def reading(registry: FakeRegistry, **more: str) -> ReadOptions:
    """How a restore reads that names the target's registry."""
    properties = {"schema.registry.url": registry.url, "max.retries": "0", **more}
    return ReadOptions(value_converter="avro", properties={View.VALUE: properties})


def test_values_are_under_the_targets_ids(registry: FakeRegistry, backup: Backup) -> None:
    """The schema is registered under the new topic's subject, and consumers read values."""
    registry.add("taken-value", '"int"')
    restoring = Restoring(backup)

    restoring.restore(reading=reading(registry))

    assert [2] == registry.subjects()["copy_of_orders-value"]
    [log] = restoring.cluster.logs.values()
    values = [row["value"] for row in log.rows if row is not MARKER]
    assert [head_of(2) + datum({"id": at}) for at in range(2)] == values
    assert "x.Order" == f"{registry.schema(2)['namespace']}.{registry.schema(2)['name']}"


def test_nothing_is_registered_where_that_is_left_to_others(
    registry: FakeRegistry, backup: Backup
) -> None:
    """With auto.register.schemas=false a subject without the schema is an error."""
    restoring = Restoring(backup)
    options = reading(registry, **{"auto.register.schemas": "false"})
    with pytest.raises(RegistryError, match="copy_of_orders-value does not have the schema"):
        restoring.restore(reading=options)
    assert {} == registry.subjects()
    Restoring(backup).restore(reading=reading(registry))
    before = registry.subjects()
    again = Restoring(backup)
    again.restore(reading=options)

    [log] = again.cluster.logs.values()
    ids = {row["value"][:5] for row in log.rows if row is not MARKER}
    assert (before, {head_of(1)}) == (registry.subjects(), ids)


def test_a_registry_that_is_away_fails_the_restore(registry: FakeRegistry, backup: Backup) -> None:
    """Nothing is written that consumers could not read."""
    registry.script = [503]
    restoring = Restoring(backup)
    with pytest.raises(RegistryError, match="refused when asked to register"):
        restoring.restore(reading=reading(registry))


def test_looking_registers_nothing(registry: FakeRegistry, backup: Backup) -> None:
    """Without a target, values are shown as the JSON that they are in words."""
    options = replace(reading(registry), topic=None)
    [sets] = listing.list_backup(backup.store, backup.layout, options.formats).sets.values()
    found = read(Reading(backup.store, options), sets[0])
    rows = [row for batch in found for row in batch.to_pylist()]

    assert [b'{"id":0}', b'{"id":1}'] == [row["value"] for row in rows]
    assert not registry.asked
