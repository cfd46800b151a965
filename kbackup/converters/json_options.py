"""The options of JSON."""

from typing import Final

from kbackup.options import boolean

SCHEMAS_ENABLE: Final = boolean(
    "schemas.enable",
    "Whether each JSON value carries its schema; true is Kafka Connect's default, which stands "
    "where the converter is named by its Java class.",
    True,
)

OPTIONS: Final = (SCHEMAS_ENABLE,)
