"""What a connector's file may ask for and this version cannot do, refused by name.

A row is a property, the values that would change what is written or read, and why not.  Those of
formats, converters and other plugins are not here: each plugin declares what it does not support,
see `kbackup.unsupported`.

Source of names, defaults and effects: kafka-connect-storage-cloud 87eb7d39,
``S3SinkConnectorConfig``.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from kbackup import plugins
from kbackup.config.property import PREFIXES, READING, RUNS, SINK
from kbackup.config.settings import BY_NAME
from kbackup.errors import ConfigurationError
from kbackup.unsupported import given, other_than

_BOTH: Final = SINK | READING


@dataclass(frozen=True, slots=True)
class Refusal:
    """One row.

    Attributes:
        name: The property.
        applies: Whether a value, without surrounding blanks, asks for what cannot be done.
        why: The reason.
        do: What to do instead.
        commands: The commands that use the property.
        reads_others: Whether the other properties let it have its effect.
        is_built_in: Whether it comes with kbackup.
    """

    name: str
    applies: Callable[[str], bool]
    why: str
    do: str
    commands: frozenset[str] = _BOTH
    reads_others: Callable[[Mapping[str, str]], bool] = lambda _: True
    is_built_in: bool = True


_ROWS: Final = (
    Refusal(
        "file.discovery.starting.timestamp",
        other_than("0", ""),
        "it would leave objects out by when they were stored, and this version restores all",
        "remove it, and choose records with --from-time or --from-offset",
        READING,
    ),
    Refusal(
        "filename.regex",
        other_than(r"(.+)\+(\d+)\+.+$", ""),
        "names are parsed by directory.delim and file.delim",
        "set file.delim, and remove it",
        READING,
    ),
    Refusal(
        "kafka.api.key",
        given,
        "only a managed connector has such a key",
        "set security.protocol=SASL_SSL, sasl.mechanism=PLAIN, sasl.username and sasl.password",
    ),
    Refusal(
        "kafka.api.secret",
        given,
        "only a managed connector has such a secret",
        "set sasl.password",
    ),
)

_COMMANDS: Final = {"converters": RUNS}
"""The commands that refuse what a plugin does not support, by seam; the others: all."""

_CHOOSE: Final = {
    "formats": "format.class",
    "partitioners": "partitioner.class",
    "extractors": "timestamp.extractor",
    "stores": "store.url",
}
"""The property that names a seam's plugin; a converter's is the prefix of its own."""


def _of_plugins() -> Iterator[Refusal]:
    """Yield a row for each property that an installed plugin declares as unsupported."""
    for found in plugins.refused():
        one = found.property
        both = _COMMANDS.get(found.seam, _BOTH)
        commands = {"sink": both & SINK, "restore": both - SINK, "both": both}[one.commands]
        for prefix in PREFIXES.get(found.seam, ("",)):
            chooses = _CHOOSE.get(found.seam, prefix.removesuffix("."))
            yield Refusal(
                prefix + one.name,
                one.applies,
                one.why,
                one.do,
                commands,
                partial(_is_chosen, found, chooses),
                found.is_built_in,
            )


def _is_chosen(found: plugins.Refused, chooses: str, given: Mapping[str, str]) -> bool:
    """Whether the property has its effect: no other plugin is named."""
    named = given.get(chooses) or BY_NAME[chooses].default
    if not named or (found.seam == "formats" and found.property.commands == "restore"):
        return True  # a worker's converter; and the objects themselves say what reads them
    if found.seam == "stores":
        return named.partition("://")[0] in found.plugins
    try:
        return plugins.by_class_name(found.seam, named) in found.plugins
    except ConfigurationError:
        return False  # refused by its own name


def _stores_headers(given: Mapping[str, str]) -> bool:
    return given.get("store.kafka.headers", "").lower() == "true"


def _other_header_text(text: str) -> bool:
    return text.rpartition(".")[2] not in ("", "StringConverter")


_HEADERS: Final = Refusal(
    "header.converter",
    _other_header_text,
    "files of headers hold the values' text as it is, as with StringConverter; "
    "SimpleHeaderConverter parses the text and writes it anew, 1.50 as 1.5 and 007 as 7, others "
    "write base64 or JSON",
    "set it to org.apache.kafka.connect.storage.StringConverter, or store.kafka.headers=false",
    SINK,
    _stores_headers,
)

REFUSALS: Final = (*_ROWS, _HEADERS, *_of_plugins())


def find(name: str) -> tuple[Refusal, ...]:
    """Return the rows for property *name*, one for each reason."""
    return tuple(refusal for refusal in REFUSALS if refusal.name == name)
