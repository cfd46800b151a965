"""The schema under which a column is written to a file that has one."""

import pyarrow as pa

from kbackup.columns import schema_of
from kbackup.connect import schema as connect
from kbackup.connect.schema import ConnectSchema
from kbackup.errors import ConfigurationError


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
