"""Whether bytes that begin like a record of a schema can be one.

A number of 8 bytes, as Kafka's LongSerializer writes it, begins with a zero and what may be the id
of any schema; so does a windowed key that is made of one.
"""

from typing import Final

import orjson
import pyarrow as pa

from kbackup.connect import avro_values
from kbackup.connect.avro_imports import united
from kbackup.registry import AVRO, JSON, RegisteredSchema

MOST: Final = 20
"""Bodies that are tried: the more, the less likely it is that all of them fit by chance."""


def fits(schema: RegisteredSchema, bodies: pa.BinaryArray) -> bool:
    """Whether all of *bodies* can be values of *schema*; of Protobuf nothing is known.

    Args:
        schema: What the registry has under the id.
        bodies: What follows the id.
    """
    some = bodies.slice(0, MOST)
    if schema.kind == AVRO:
        try:
            text = united(schema.text, [text for _, text in schema.imports])
            return not avro_values.decode_each(some, text)[1]
        except ValueError:  # no schema of ours: nothing is known
            return True
    if schema.kind == JSON:
        return all(_is_json(body) for body in some.to_pylist())
    return True


def _is_json(body: bytes) -> bool:
    try:
        orjson.loads(body)
    except ValueError:
        return False
    return True
