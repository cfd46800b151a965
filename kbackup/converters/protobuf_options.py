"""The options of Protobuf through a Schema Registry."""

from typing import Final

from kbackup.connect.registry import options as registry
from kbackup.options import Unsupported, boolean, false, true

ENHANCED: Final = boolean(
    "enhanced.protobuf.schema.support",
    "Whether names of messages and enums keep their package.",
    False,
)
INT_ENUMS: Final = boolean(
    "int.for.enums", "Whether an enum of Protobuf is its number, instead of its symbol.", False
)
OPTIONAL: Final = boolean(
    "optional.for.nullables",
    "Whether only fields that are declared optional, messages and enums are optional columns; "
    "otherwise all are.",
    False,
)
WRAPPED: Final = boolean(
    "wrapper.for.nullables",
    "Whether messages such as google.protobuf.Int64Value are optional values, and plain fields "
    "required ones.",
    False,
)
WRAPPED_ALONE: Final = boolean(
    "wrapper.for.raw.primitives",
    "Whether such a message is a plain value where it is the whole record.",
    True,
)
INDEXED_UNIONS: Final = boolean(
    "generate.index.for.unions",
    "Whether the column of a oneof has its index after its name, as in choice_0.",
    True,
)

FLAT_UNIONS: Final = Unsupported(
    "flatten.unions",
    true,
    "it puts the fields of a oneof beside the others, and this version keeps them in a struct",
)
FILLED_NULLS: Final = Unsupported(
    "generate.struct.for.nulls",
    true,
    "it fills messages that are not set, and this version stores null",
)
PROTO2_REQUIRED: Final = Unsupported(
    "support.optional.for.proto2",
    false,
    "this version reads the keyword optional in proto2 files too",
)

OPTIONS: Final = (
    *registry.OPTIONS, ENHANCED, INT_ENUMS, OPTIONAL, WRAPPED, WRAPPED_ALONE, INDEXED_UNIONS,
    FLAT_UNIONS, FILLED_NULLS, PROTO2_REQUIRED,
)  # fmt: skip
