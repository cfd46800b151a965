"""All known names: ours, the connectors', Kafka's; and the nearest one to an unknown name.

Sources: kafka-connect-storage-cloud 87eb7d39, ``S3SinkConnectorConfig``;
kafka-connect-storage-common 9bb1f372; what the source connector's plugin reports about itself;
``org.apache.kafka.connect.runtime``.
"""

import difflib
import re
from functools import cache
from typing import Final

from kbackup.config.issues import REFUSALS
from kbackup.config.property import variable
from kbackup.config.settings import ALIASES, BY_NAME, PROPERTIES
from kbackup.config.transforms import is_transform

NO_EFFECT: Final = frozenset(
    """
    connector.class tasks.max storage.class schema.generator.class header.converter
    schemas.cache.config schema.cache.size retry.backoff.ms shutdown.timeout.ms
    max.write.duration.ms
    max.files.scan.limit local.buffer.dir
    enable.conditional.writes s3.send.digest s3.http.send.expect.continue
    config.action.reload
    folders record.batch.max.size task.batch.size
    exactly.once.support transaction.boundary transaction.boundary.interval.ms
    topic.creation.groups partition.field.format.path
    csv.escape.char csv.ignore.leading.whitespace csv.ignore.quotations csv.strict.quotes
    csv.case.sensitive.field.names
    _comment
    """.split()  # noqa: SIM905 - words read better so
)
"""Accepted without effect: what they adjust does not exist in kbackup."""

NO_EFFECT_PREFIXES: Final = (
    "confluent.",
    "s3.elastic.buffer.",
    "s3.credentials.provider.",
    "bucket.listing.",
    "bucket.scan.",
    "header.converter.",
    "topic.creation.",
    "hive.",
)

CLIENT_PREFIXES: Final = (
    "sasl.",
    "ssl.",
    "kafka.",
    "consumer.override.",
    "producer.override.",
    "admin.override.",
)
"""Properties with these prefixes go to the Kafka client."""

CONVERTER_PREFIXES: Final = ("key.converter.", "value.converter.")
_FAMILIES: Final = (*NO_EFFECT_PREFIXES, *CLIENT_PREFIXES, *CONVERTER_PREFIXES)

FROM_LIFE: Final = {
    "task.max": "tasks.max",
    "s3.schema.compatibility": "schema.compatibility",
    "group.id": "group",
    "rotate.scheduled.interval.ms": "rotate.schedule.interval.ms",
    "schemas.enable": "value.converter.schemas.enable",
    "format": "format.class",
    **{
        mistake: found.name
        for found in PROPERTIES
        for mistake in (() if found.option is None else found.option.mistaken)
    },
}
"""Names that people have used, to the ones that they meant."""

_SUGGESTIONS_MAX: Final = 64
"""Characters of a name that are compared; our longest name has 45."""


@cache
def _all() -> tuple[str, ...]:
    refused = {refusal.name for refusal in REFUSALS}
    ours = {found.name for found in PROPERTIES if found.is_property}
    clients = {"security.protocol", "kafka.client.id", "consumer.override.isolation.level"}
    return tuple(sorted(ours | refused | NO_EFFECT | set(ALIASES) | clients))


@cache
def _by_variable() -> dict[str, str]:
    options = {found.name for found in PROPERTIES}
    return {variable(name): ALIASES.get(name, name) for name in sorted(options.union(_all()))}


def is_known(name: str) -> bool:
    """Whether *name* is a property of kbackup, a connector or Kafka's clients."""
    return name in _all() or is_transform(name) or name.startswith(_FAMILIES)


def name_of_variable(text: str) -> str | None:
    """Return the property that variable *text* sets, None if there is none.

    A variable of a family, such as ``KBACKUP_SASL_KERBEROS_KEYTAB``, sets the property with
    dots in place of underscores.
    """
    name = _by_variable().get(text)
    if name is None:
        family = text.removeprefix("KBACKUP_").lower().replace("_", ".")
        is_one = family.startswith(_FAMILIES)
        return family if is_one and re.fullmatch(r"[\w.]+", family) else None
    return name


def nearest(name: str) -> tuple[str, str]:
    """Return why *name* has no effect and what to do, including the nearest known name."""
    if name in BY_NAME:
        return "it is an option, not a property of a file; it has no effect", ""
    best = FROM_LIFE.get(name)
    if best is None:
        found = difflib.get_close_matches(name[:_SUGGESTIONS_MAX], _all(), 1, 0.0)
        best = found[0] if found else ""
        close = difflib.SequenceMatcher(None, name[:_SUGGESTIONS_MAX], best).ratio() >= 0.75
        if not close:
            return "no such property; it has no effect", f"the nearest known name is {best}"
    return "no such property; it has no effect", f"did you mean {best}?"


def nearest_variable(text: str) -> tuple[str, str]:
    """Return why the variable *text* has no effect and what to do."""
    found = difflib.get_close_matches(text[:_SUGGESTIONS_MAX], _by_variable(), 1, 0.0)
    return "no such variable; it has no effect", f"the nearest known one is {found[0]}"
