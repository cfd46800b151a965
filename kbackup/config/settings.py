"""`Settings`: every value a run needs, checked once, then frozen; and the list of properties."""

from functools import cache
from typing import Any, Final

from pydantic import Field, SkipValidation

from kbackup.config.connection import Kafka, Store
from kbackup.config.layout import Layout, Rotation, Safety
from kbackup.config.parsing import names_store
from kbackup.config.property import Group, Property, properties
from kbackup.config.running import Output, Restore, Run
from kbackup.renaming import Rename

GROUPS: Final[tuple[type[Group], ...]] = (
    Kafka,
    Store,
    Layout,
    Rotation,
    Safety,
    Restore,
    Run,
    Output,
)


class Settings(Output, Run, Restore, Safety, Rotation, Layout, Store, Kafka):
    """The configuration of one command: plain data, which may cross a process.

    Beside the declared properties stand what follows from them:

    Attributes:
        plugin_options: What the chosen plugins declare for themselves, by property.
        renames: The renaming of a restore, one step after the other.
        key_converter_properties: Sub-properties of the key's converter: ``schemas.enable`` ...
        value_converter_properties: Sub-properties of the value's converter.
        kafka_consumer: Properties of librdkafka's consumer, ``bootstrap.servers`` excepted.
        kafka_producer: The same of its producer.
        kafka_admin: The same of its admin client.

    ``format_class``, ``keys_format_class``, ``headers_format_class``, ``key_converter``,
    ``value_converter`` and ``partitioner_class`` hold names that `kbackup.plugins` knows.
    """

    plugin_options: dict[str, str] = Field({}, repr=False)
    renames: SkipValidation[tuple[Rename, ...]] = ()
    key_converter_properties: dict[str, str] = Field({}, repr=False)
    value_converter_properties: dict[str, str] = Field({}, repr=False)
    kafka_consumer: dict[str, str] = Field({}, repr=False)
    kafka_producer: dict[str, str] = Field({}, repr=False)
    kafka_admin: dict[str, str] = Field({}, repr=False)

    @property
    def url(self) -> str:
        """Where the backup is: ``s3://BUCKET``, or the URL of another store; empty if not given."""
        if self.store_url is not None and names_store(self.store_url):
            return self.store_url
        return "" if self.s3_bucket_name is None else f"s3://{self.s3_bucket_name}"

    @property
    def endpoint_url(self) -> str | None:
        """The S3 server's URL, None for AWS and for other stores."""
        return None if self.url == self.store_url else self.store_url

    @property
    def separator(self) -> bytes:
        """Bytes behind each value of a byte-array file."""
        text = self.format_bytearray_separator
        return b"\n" if text is None else text.encode()


PROPERTIES: Final[tuple[Property, ...]] = tuple(
    found for group in GROUPS for found in properties(group)
)
"""All declarations, in the order of the documentation."""

BY_NAME: Final[dict[str, Property]] = {found.name: found for found in PROPERTIES}
ALIASES: Final[dict[str, str]] = {
    alias: found.name for found in PROPERTIES for alias in found.aliases
}
"""Another spelling to the name of the property."""


@cache
def by_attribute() -> dict[str, Property]:
    """Return the properties by the attribute of `Settings` that holds each."""
    return {found.attribute: found for found in PROPERTIES}


def shown_value(value: Any) -> str:
    """Return *value* of a setting as one would write it in a file."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case float():
            return f"{value:g}s"
        case dict():
            return ",".join(f"{name}={text}" for name, text in value.items())
        case tuple():
            return ",".join(map(str, value))
    return str(value)
