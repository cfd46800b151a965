"""Which layout, and which format, converter and partitioner stand for the names in a file.

``format.class`` chooses the connectors' layout, its absence whole records.  What no installed
plugin answers to, and what cannot go together, is refused by name.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kbackup import plugins
from kbackup.assumptions import assumed_converter
from kbackup.config.doubts import Doubt, Value, error, warning
from kbackup.errors import ConfigurationError

CONVERTERS_OF: Final = {"json": ("json", "string"), "bytes": ("bytes",)}
"""The converters a format of ours can follow; a format not listed is asked for nothing."""
RECORDS_ONLY: Final = ("parquet",)
VALUES_ONLY: Final = ("json", "bytes")
COMPRESSED: Final = ("json", "bytes")
"""Formats that ``s3.compression.type`` applies to."""
_OF_VALUES: Final = (
    "key.converter",
    "value.converter",
    "store.kafka.",
    "keys.format.",
    "headers.format.",
    "behavior.on.null.",
)

_DO: Final = "choose one of them, or install the package that brings it"


@dataclass(slots=True)
class Seams:
    """What was made out.

    Attributes:
        view: "record" or "value".
        found: Attributes of `Settings` to their values.
        doubts: What there is to say.
        without_effect: Names that do nothing in this layout.
    """

    view: str
    found: dict[str, Any] = field(default_factory=dict)
    doubts: list[Doubt] = field(default_factory=list)
    without_effect: list[str] = field(default_factory=list)


def resolve(
    given: Mapping[str, Value], *, writes: bool, converts: bool, is_connector: bool
) -> Seams:
    """Make out view, formats, converters and partitioner.

    Args:
        given: What was given, erroneous values left out.
        writes: Whether the command writes objects (sink) or reads them.
        converts: Whether it looks into records at all.
        is_connector: Whether the file is a connector's.
    """
    view = given["view"].text.lower() if "view" in given else ""
    if view not in ("record", "value"):
        view = "value" if "format.class" in given or is_connector else "record"
    seams = Seams(view, {"view": view} if writes and "view" not in given else {})
    if is_connector and "format.class" not in given:
        why = "a connector's file without it is incomplete"
        do = "add format.class; for whole records leave out connector.class"
        seams.doubts.append(error("incomplete", "format.class", None, why, do))
    _name(seams, "formats", "format.class", given)
    _name(seams, "partitioners", "partitioner.class", given)
    if view == "record" and writes:
        _whole_records(seams, given)
    else:
        _values(seams, given, writes=writes, is_connector=is_connector)
        if converts:
            _converters(seams, given, writes=writes)
    return seams


def _name(seams: Seams, seam: str, name: str, given: Mapping[str, Value]) -> None:
    """Note the registered name of the plugin that *name* asks for."""
    value = given.get(name)
    if value is None or not value.text:
        return
    try:
        seams.found[name.replace(".", "_")] = plugins.by_class_name(seam, value.text)
    except ConfigurationError as problem:
        why = f"this version does not have it; {problem.why}"
        seams.doubts.append(error("unsupported", name, value, why, _DO))


def _whole_records(seams: Seams, given: Mapping[str, Value]) -> None:
    format_name = seams.found.setdefault("format_class", "parquet")
    value = given.get("format.class")
    if format_name in VALUES_ONLY:
        why = "this version writes whole records in Parquet"
        do = "leave out format.class, or choose --view value"
        seams.doubts.append(error("unsupported", "format.class", value, why, do))
    compression = given.get("s3.compression.type")
    if compression is not None and compression.text == "gzip":
        why = "it is for JSON and byte-array files; Parquet has its own"
        do = "set parquet.codec"
        seams.doubts.append(error("combination", "s3.compression.type", compression, why, do))
    seams.without_effect += [name for name in given if name.startswith(_OF_VALUES)]


def _values(seams: Seams, given: Mapping[str, Value], *, writes: bool, is_connector: bool) -> None:
    format_name: str | None = seams.found.get("format_class")
    if format_name in RECORDS_ONLY and (writes or is_connector):
        why = "this version has Parquet for whole records only"
        do = "leave out format.class for whole records, or choose json or bytes"
        seams.doubts.append(error("unsupported", "format.class", given["format.class"], why, do))
    for part in ("keys", "headers"):
        name = f"{part}.format.class"
        if _is_true(given, f"store.kafka.{part}"):
            _name(seams, "formats", name, given)
            if writes:
                seams.doubts += _side_format(seams, given, part, name)
        elif name in given:
            seams.without_effect.append(name)
    if writes:
        seams.doubts += _compression(seams, given)


def _converters(seams: Seams, given: Mapping[str, Value], *, writes: bool) -> None:
    """Note both converters; the key's counts where keys are stored.

    A backup that is read may have keys of which its file says nothing, so its converter is taken
    where it can be, and where not, does not matter.
    """
    format_name: str | None = seams.found.get("format_class")
    _converter(seams, given, "value", format_name)
    keys_format = seams.found.get("keys_format_class", None if writes else format_name)
    if _is_true(given, "store.kafka.keys"):
        _converter(seams, given, "key", keys_format)
        return
    trial = Seams(seams.view)
    if not writes:
        _converter(trial, given, "key", keys_format)
    if writes or any(doubt.level == "error" for doubt in trial.doubts):
        seams.without_effect += [name for name in given if name.startswith("key.converter")]
    else:
        seams.found |= trial.found


def _side_format(seams: Seams, given: Mapping[str, Value], part: str, name: str) -> Iterator[Doubt]:
    """What speaks against the files of keys or headers."""
    found = seams.found.get(name.replace(".", "_"))
    if name not in given:
        why = "not given, and the connector takes Avro then, which this version does not write"
        yield error("unsupported", name, None, why, f"set {name}=json")
    elif found in RECORDS_ONLY or (found == "bytes" and part == "headers"):
        why = f"this version cannot write {part} so"
        yield error("unsupported", name, given[name], why, f"set {name}=json")


def _compression(seams: Seams, given: Mapping[str, Value]) -> Iterator[Doubt]:
    """Source: ``S3SinkConnectorConfig.validateCompression``: every file must be of a kind."""
    compression = given.get("s3.compression.type")
    if compression is None or compression.text != "gzip":
        return
    for attribute in ("format_class", "keys_format_class", "headers_format_class"):
        found = seams.found.get(attribute)
        if found is not None and found not in COMPRESSED:
            why = f"{attribute.replace('_', '.')} is {found}, and gzip is for json and bytes"
            yield error("combination", "s3.compression.type", compression, why, "set it to none")


def _converter(
    seams: Seams, given: Mapping[str, Value], part: str, format_name: str | None
) -> None:
    """Note the converter of *part* and its sub-properties."""
    name = f"{part}.converter"
    properties = {
        key.removeprefix(f"{name}."): value.text
        for key, value in given.items()
        if key.startswith(f"{name}.")
    }
    value = given.get(name)
    _name(seams, "converters", name, given)
    found = seams.found.get(f"{part}_converter")
    if found is None and value is None:
        found = assumed_converter(format_name, part)
        if found is not None:
            seams.found[f"{part}_converter"] = found
            says = " with schemas.enable=false" if found == "json" else ""
            why = f"not given, its worker's was used; {found}{says} is assumed"
            do = f"set {name} to what the worker has"
            seams.doubts.append(warning("assumed", name, None, why, do))
    allowed = CONVERTERS_OF.get(format_name or "")
    if found is not None and allowed is not None and found not in allowed:
        why = f"this version writes {format_name} files of: {', '.join(allowed)}"
        seams.doubts.append(error("combination", name, value, why, f"set {name}={allowed[0]}"))
    if found == "json":
        is_ours = value is None or value.text == "json"  # JsonConverter's own default is true
        enabled = properties.setdefault("schemas.enable", "false" if is_ours else "true")
        if enabled.lower() != "false":
            named = f"{name}.schemas.enable"
            why = "JSON with schemas in it is not in this version"
            if named not in given:
                why = f"{why}; JsonConverter takes true for it where it is not given"
            do = f"set {named}=false if the records carry no schema"
            seams.doubts.append(error("unsupported", named, given.get(named), why, do))
    seams.found[f"{part}_converter_properties"] = properties


def _is_true(given: Mapping[str, Value], name: str) -> bool:
    return name in given and given[name].text.lower() == "true"
