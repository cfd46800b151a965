"""What formats of the connectors' layout share: a column's schema, keys, reading alone."""

from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.connect import schema as connect
from kbackup.connect.schema import ConnectSchema
from kbackup.errors import ConfigurationError
from kbackup.formats import FormatOptions
from kbackup.naming import View
from kbackup.records import Bad, Schema, schema_of


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


class OnlyRead:
    """The writing half of a `kbackup.formats.Format` that writes nothing.

    Attributes:
        unwritten: What kbackup does not write, such as "CSV".
        refusal: Why it cannot be used to write.
        instead: What to do.
    """

    reads_only: ClassVar[bool] = True
    unwritten: ClassVar[str]
    refusal: ClassVar[str]
    instead: ClassVar[str]

    def refuses(self, view: View, values: pa.Array) -> Sequence[Bad]:  # noqa: ARG002
        """Refuse every row: nothing is written."""
        return [Bad(row, f"kbackup writes no {self.unwritten}") for row in range(len(values))]

    def writer(
        self,
        file: BinaryIO,  # noqa: ARG002
        view: View,  # noqa: ARG002
        options: FormatOptions,  # noqa: ARG002
        schema: Schema | None = None,  # noqa: ARG002
    ) -> Any:
        """Refuse.

        Raises:
            ConfigurationError: Always.
        """
        raise ConfigurationError(self.refusal, do=self.instead)

    def own_metadata(self, file: BinaryIO) -> Mapping[str, str]:  # noqa: ARG002
        """Return nothing: the file has no room for it."""
        return {}
