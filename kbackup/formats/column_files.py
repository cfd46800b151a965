"""What formats of the connectors' layout share: a column's schema, keys, reading alone."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.connect import schema as connect
from kbackup.connect.schema import ConnectSchema
from kbackup.errors import ConfigurationError
from kbackup.records import Bad, schema_of


def column_schema(field: pa.Field, form: str) -> ConnectSchema:
    """Return the schema of *field*'s values, or the one that its Arrow type stands for.

    Args:
        field: The column.
        form: The kind of file, with its article, for the error.

    Raises:
        ConfigurationError: If neither is a schema of Kafka Connect.
    """
    found = connect.of(schema_of(field))
    if found is not None:
        return found
    try:
        return connect.of_arrow(field.type)
    except ValueError:
        raise ConfigurationError(
            f"{form} cannot hold {field.name}s converted to {field.type}",
            f"{form} needs a schema",
            f"choose a {field.name}.converter that has schemas, such as JsonConverter with "
            "schemas.enable=true",
        ) from None


def null_keys(keys: pa.Array) -> Sequence[Bad]:
    """Return the rows without a key, as `Format.refuses` does."""
    why = "the connectors cannot tell it from a key that is missing"
    do = "leave keys out with store.kafka.keys=false, or keep full records"
    return [
        Bad(row, "a null key cannot be written to a file of keys", why, do)
        for row in pc.indices_nonzero(keys.is_null()).to_pylist()
    ]
