"""The options of JSON with the schemas of a Schema Registry."""

from typing import Final

from kbackup.converters.json_options import DECIMAL_FORMAT
from kbackup.options import boolean
from kbackup.registry import options as registry

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

OPTIONS: Final = (*registry.OPTIONS, NOT_REQUIRED, ADDITIONAL, DECIMAL_FORMAT)
