"""Whatever is registered passes the suites that `kbackup.testing` gives to plugin authors."""

from typing import Final

import pytest

from kbackup import converters, extractors, formats, partitioners, plugins
from kbackup.converters import Converter
from kbackup.extractors import TimestampExtractor
from kbackup.formats import Format
from kbackup.partitioners import Partitioner
from kbackup.testing import (
    ConverterContract,
    ExtractorContract,
    FormatContract,
    PartitionerContract,
)

OPTIONS: Final = {
    "timezone": "Europe/Berlin",
    "locale": "en",
    "path.format": "yyyy-MM-dd/HH",
    "partition.duration.ms": 3_600_000,
    "partition.field.name": ("n",),
}
"""What partitioners cannot do without."""


def names(seam: str) -> list[str]:
    """What is installed for a seam."""
    return [found.name for found in plugins.installed(seam)]


class TestConverters(ConverterContract):
    """Each registered converter."""

    @pytest.fixture(params=names("converters"))
    def converter(self, request: pytest.FixtureRequest) -> Converter:
        return converters.by_name(request.param)


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
