"""Headers as the text that the connectors' files hold."""

import base64
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.columns import Bad, Column
from kbackup.flow.views import HEADERS_AS_TEXT

_HEADERS_DO: Final = "use whole records (without format.class), or store.kafka.headers=false"


def headers_as_text(column: pa.Array) -> Column:
    """Return headers with values as text: UTF-8 as it is, other bytes in base64.

    Source: ``Values.convertToString`` by way of ``connect-compat`` section 3.5.

    Returns:
        `HEADERS_AS_TEXT`; a record without headers, or with a null header value, is bad: the
        connectors' header files cannot store it.
    """
    lengths = pc.list_value_length(column)
    flat = column.flatten()
    names, values = flat.field("key"), flat.field("value")
    bad = [
        Bad(row, "a record has no headers", "store.kafka.headers=true needs some", _HEADERS_DO)
        for row in pc.indices_nonzero(pc.equal(lengths, 0)).to_pylist()
    ]
    if values.null_count:
        parents = pc.list_parent_indices(column)
        for at in pc.indices_nonzero(values.is_null()).to_pylist():
            what = f"header {names[at].as_py()!r} of a record has a null value"
            why = "the connectors' header files cannot store it"
            bad.append(Bad(parents[at].as_py(), what, why, _HEADERS_DO))
    try:
        texts = values.cast(pa.string())
    except pa.ArrowInvalid:  # some value is not UTF-8; such headers are rare
        found = [None if value is None else _text(value) for value in values.to_pylist()]
        texts = pa.array(found, pa.string())
    ends = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])
    structs = pa.StructArray.from_arrays([names, texts], fields=list(HEADERS_AS_TEXT.value_type))
    bad.sort(key=lambda at: at.row)
    return Column(pa.ListArray.from_arrays(ends, structs), bad=tuple(bad))


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return base64.b64encode(value).decode()
