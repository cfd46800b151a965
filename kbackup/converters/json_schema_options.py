"""The options of JSON with the schemas of a Schema Registry."""

from typing import Final

from kbackup.connect.registry import options as registry
from kbackup.converters.avro_options import SINGLE_UNIONS
from kbackup.converters.json_options import DECIMAL_FORMAT
from kbackup.options import Unsupported, boolean, true

NOT_REQUIRED: Final = boolean(
    "use.optional.for.nonrequired",
    "Whether a property that its JSON Schema does not list as required may be null or absent; "
    "otherwise a record without it is a bad record.",
    False,
)
ADDITIONAL: Final = boolean(
    "object.additional.properties",
    "Whether JSON Schemas that are registered allow properties that they do not name.",
    True,
    commands="restore",
)

AVRO_NAMES: Final = Unsupported(
    "scrub.invalid.names",
    true,
    "it changes names that Avro does not allow, and this version keeps names",
)
ADDITIONAL_KEPT: Final = Unsupported(
    "preserve.additional.properties",
    true,
    "it keeps properties that the schema does not name, and this version leaves them out",
)
VALIDATION: Final = Unsupported(
    "json.fail.invalid.schema",
    true,
    "it refuses records that break a rule of their JSON Schema, such as a pattern, and this "
    "version checks types only",
)
INDENT: Final = Unsupported(
    "json.indent.output",
    true,
    "it spreads JSON over lines, and this version writes it on one",
    commands="restore",
)

OPTIONS: Final = (
    *registry.OPTIONS, NOT_REQUIRED, ADDITIONAL, DECIMAL_FORMAT,
    SINGLE_UNIONS, AVRO_NAMES, ADDITIONAL_KEPT, VALIDATION, INDENT,
)  # fmt: skip
