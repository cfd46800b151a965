"""Whatever is registered passes the suites that `kbackup.testing` gives to plugin authors."""

from typing import Any, Final

import pytest

from tests.contract.product import (
    ExtractorContract,
    Partitioner,
    PartitionerContract,
    TimestampExtractor,
    Transform,
    TransformContract,
    extractors,
    partitioners,
    plugins,
)

OPTIONS: Final = {
    "timezone": "Europe/Berlin",
    "locale": "en",
    "path.format": "yyyy-MM-dd/HH",
    "partition.duration.ms": 3_600_000,
    "partition.field.name": ("n",),
}
"""What partitioners cannot do without."""


def names(extension_point: str) -> list[str]:
    """What is installed for an extension point."""
    return [found.name for found in plugins.installed(extension_point)]


class TestExtractors(ExtractorContract):
    """Each registered timestamp extractor."""

    @pytest.fixture(params=names("extractors"))
    def extractor(self, request: pytest.FixtureRequest) -> TimestampExtractor:
        return extractors.by_name(request.param, {})


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
