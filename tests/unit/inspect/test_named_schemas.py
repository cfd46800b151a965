"""The registry schemas that records name, as people see them."""

from typing import Any

import pytest
from backup_samples import Backup
from record_samples import batch_of

from kbackup.catalog import schemas
from kbackup.catalog.schemas import KeptSchema, SchemaUse
from kbackup.connect.registry import AVRO, RegisteredSchema
from kbackup.errors import StoreError
from kbackup.events import to_json
from kbackup.inspect.peek import NamedSchema, peek
from kbackup.inspect.topics import topics
from kbackup.pipeline.views import ReadOptions
from tests.support.json_lines import LINES


@pytest.fixture
def backup() -> Backup:
    """A topic whose values name the schemas 7, which is stored, and 8, which nobody knows."""
    backup = Backup()
    rows = [b"\0\0\0\0\7a", b"\0\0\0\0\x08b", b"plain", None]
    backup.put("orders", 0, batch_of([{"offset": at, "value": v} for at, v in enumerate(rows)]))
    kept = KeptSchema(
        SchemaUse("orders", "value", 7), RegisteredSchema(AVRO, '"bytes"'), {"orders-value": 3}
    )
    schemas.put(backup.store, backup.layout, kept)
    unknown = SchemaUse("orders", "value", 8)
    schemas.note(backup.store, backup.layout, unknown, schemas.UNKNOWN, "404")
    return backup


def shown(backup: Backup) -> list[dict[str, Any]]:
    """What `peek` says of schemas."""
    found: Any = peek(backup.store, backup.layout, ReadOptions(), "orders")
    return [row.get("payload_schema") for row in found]


def test_topics_tell_ids_and_subjects(backup: Backup) -> None:
    """Stored and unknown ones, as lines that fulfil the schema."""
    found = topics(backup.store, backup.layout, ReadOptions(), has_schemas=True)

    told = [to_json(one) for one in found if isinstance(one, NamedSchema)]
    for line in told:
        LINES.validate(line)
    assert [
        (7, "stored", "AVRO", ["orders-value"]), (8, "unknown", None, []),
    ] == [(one["id"], one["state"], one["kind"], one["subjects"]) for one in told]  # fmt: skip


def test_a_record_shows_the_schema_that_it_names(backup: Backup) -> None:
    """Where the backup has it; other bytes show none."""
    assert [{"id": 7, "subjects": ["orders-value"]}, None, None, None] == shown(backup)


def test_records_are_shown_where_schemas_may_not_be_listed(
    backup: Backup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who may read nothing but objects sees them as they are."""
    listed = backup.store.list

    def refused(prefix: str, **named: Any) -> Any:
        if prefix.startswith("_kbackup/"):
            raise StoreError("LIST", "403", "")
        return listed(prefix, **named)

    monkeypatch.setattr(type(backup.store), "list", lambda _, *a, **k: refused(*a, **k))

    assert [None] * 4 == shown(backup)
