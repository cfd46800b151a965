"""What every format of the connectors' layout refuses in a file of keys."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.columns import Bad


def null_keys(keys: pa.Array) -> Sequence[Bad]:
    """Return the rows without a key, as `Format.refuses` does."""
    why = "the connectors cannot tell it from a key that is missing"
    do = "leave keys out with store.kafka.keys=false, or keep whole records"
    return [
        Bad(row, "a null key cannot be written to a file of keys", why, do)
        for row in pc.indices_nonzero(keys.is_null()).to_pylist()
    ]
