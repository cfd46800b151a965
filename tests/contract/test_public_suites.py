"""Whatever is registered passes the suites that `kbackup.testing` gives to plugin authors."""

import struct
from typing import Any, Final

import pyarrow as pa
import pytest

from tests.contract.product import (
    VALUES,
    BooleanConverter,
    Converter,
    ConverterContract,
    ExtractorContract,
    Format,
    FormatContract,
    Partitioner,
    PartitionerContract,
    TimestampExtractor,
    Transform,
    TransformContract,
    connect,
    converters,
    extractors,
    formats,
    partitioners,
    planned,
    plugins,
)
from tests.support.registry import FakeRegistry

OPTIONS: Final = {
    "timezone": "Europe/Berlin",
    "locale": "en",
    "path.format": "yyyy-MM-dd/HH",
    "partition.duration.ms": 3_600_000,
    "partition.field.name": ("n",),
}
"""What partitioners cannot do without."""


PROTOBUF = planned(connect.ConnectSchema(connect.Type.STRING)).text()
REGISTERED = {
    "avro": ("AVRO", '"string"', [b"\x02a", b"\0", b"\x04bc", b"\x04de"]),
    "json_schema": ("JSON", '{"type": "string"}', [b'"a"', b'""', b'"bc"', b'"de"']),
    "protobuf": ("PROTOBUF", PROTOBUF, [b"\0\x0a\1a", b"\0", b"\0\x0a\2bc", b"\0\x0a\2de"]),
}
"""Kind and text of a schema, and values under it without what names it."""


def names(extension_point: str) -> list[str]:
    """What is installed for an extension point."""
    return [found.name for found in plugins.installed(extension_point)]


class TestConverters(ConverterContract):
    """Each registered converter."""

    @pytest.fixture(params=names("converters"))
    def converter(self, request: pytest.FixtureRequest, registry: FakeRegistry) -> Converter:
        kind, text, _ = REGISTERED.get(request.param, ("AVRO", '"string"', []))
        registry.add("orders-value", text, kind)
        is_registered = request.param in REGISTERED
        properties = {"schema.registry.url": registry.url} if is_registered else None
        return converters.by_name(request.param, properties, topic="orders")

    @pytest.fixture
    def values(self, converter: Converter) -> pa.Array:
        code = getattr(converter, "code", "")
        for name, (_, _, texts) in REGISTERED.items():
            if type(converter) is plugins.load("converters", name):
                first, *rest = [b"\0\0\0\0\1" + text for text in texts]
                return pa.array([first, None, *rest], pa.binary())
        if isinstance(converter, BooleanConverter):
            return pa.array([b"\0", None, b"\1", b"\1", b"\0"], pa.binary())
        if code:
            numbers = [struct.pack(f">{code}", number) for number in (7, 0, -7, 99, 1)]
            return pa.array([numbers[0], None, *numbers[2:]], pa.binary())
        return VALUES


class TestExtractors(ExtractorContract):
    """Each registered timestamp extractor."""

    @pytest.fixture(params=names("extractors"))
    def extractor(self, request: pytest.FixtureRequest) -> TimestampExtractor:
        return extractors.by_name(request.param, {})


class TestFormats(FormatContract):
    """Each registered format."""

    @pytest.fixture(params=names("formats"))
    def form(self, request: pytest.FixtureRequest) -> Format:
        return formats.by_name(request.param)


class TestPartitioners(PartitionerContract):
    """Each registered partitioner."""

    @pytest.fixture(params=names("partitioners"))
    def partitioner(self, request: pytest.FixtureRequest) -> Partitioner:
        return partitioners.by_name(request.param, OPTIONS)


TRANSFORMS: Final[dict[str, dict[str, Any]]] = {
    "insert_field": {"offset.field": "o", "timestamp.field": "a"},
    "replace_field": {"exclude": ("a",), "renames": ("b:B",)},
    "timestamp_converter": {"field": "a", "target.type": "unix"},
    "insert_header": {"header": "x", "value.literal": "1"},
    "drop_headers": {"headers": ("h",)},
    "header_from": {"fields": ("a",), "headers": ("h",), "operation": "move"},
    "extract_field": {"field": "a"},
    "hoist_field": {"field": "a"},
    "value_to_key": {"fields": ("a", "b")},
    "mask_field": {"fields": ("a",)},
    "flatten": {},
    "cast": {"spec": ("a:string",)},
    "set_schema_metadata": {"schema.name": "n"},
    "filter": {},
    "timestamp_router": {},
    "extract_topic": {"field": "b"},
    "regex_router": {"regex": "(.*)", "replacement": "copy_$1"},
}
"""Options that make a transform do something; a transform without options here is a gap."""


class TestTransforms(TransformContract):
    """Each registered transform, of values and of keys."""

    @pytest.fixture(
        params=[
            (name, side)
            for name in names("transforms")
            for side in plugins.load("transforms", name).traits.sides or ("",)
        ],
        ids=str,
    )
    def transform(self, request: pytest.FixtureRequest) -> Transform:
        name, side = request.param
        found: Transform = plugins.load("transforms", name)()
        found.configure(TRANSFORMS[name], side)
        return found
