"""What formats have in common that kbackup reads and never writes."""

from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO, ClassVar

import pyarrow as pa

from kbackup.columns import Bad, Schema
from kbackup.errors import ConfigurationError
from kbackup.formats import FormatOptions
from kbackup.naming import View


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
