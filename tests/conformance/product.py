"""All that the conformance tests take from kbackup: what moves there is followed here alone."""

from kbackup import config, converters, formats, partitioners
from kbackup.catalog import listing
from kbackup.catalog.claims import Reading
from kbackup.catalog.merging import records
from kbackup.config import files, loading
from kbackup.config.property import variable
from kbackup.connect import fields
from kbackup.errors import ConfigurationError, CorruptObjectError, ObjectKeyError
from kbackup.formats import COLUMNS, HEADERS, Format, FormatOptions
from kbackup.formats.block_gzip import BlockGzipFormat
from kbackup.formats.json_lines import JsonFormat
from kbackup.formats.parquet import ParquetFormat
from kbackup.inspect.peek import peek
from kbackup.java import jackson, joda
from kbackup.java.joda import Pattern
from kbackup.naming import DatedLayout, Layout, ObjectKey, View
from kbackup.naming.renaming import Rename
from kbackup.partitioners import extractors
from kbackup.partitioners.default import DefaultPartitioner
from kbackup.partitioners.field import FieldPartitioner
from kbackup.partitioners.time_based import Buckets, TimeBasedPartitioner
from kbackup.pipeline.convert import (
    Compatibility,
    Conversion,
    convert,
    joins,
    needs_version,
    route,
)
from kbackup.pipeline.rotate import Append, Cut, Rule, Schedule, cut
from kbackup.pipeline.rows import Rows
from kbackup.pipeline.views import ReadOptions
from kbackup.pipeline.write import OpenFiles
from kbackup.records import Schema, Span, TopicPartition, schema_of
from kbackup.runs import wiring
from kbackup.stores import Store, StoreSettings, open_store
from kbackup.testing import decoded, encoded

__all__ = [
    "COLUMNS",
    "HEADERS",
    "Append",
    "BlockGzipFormat",
    "Buckets",
    "Compatibility",
    "ConfigurationError",
    "Conversion",
    "CorruptObjectError",
    "Cut",
    "DatedLayout",
    "DefaultPartitioner",
    "FieldPartitioner",
    "Format",
    "FormatOptions",
    "JsonFormat",
    "Layout",
    "ObjectKey",
    "ObjectKeyError",
    "OpenFiles",
    "ParquetFormat",
    "Pattern",
    "ReadOptions",
    "Reading",
    "Rename",
    "Rows",
    "Rule",
    "Schedule",
    "Schema",
    "Span",
    "Store",
    "StoreSettings",
    "TimeBasedPartitioner",
    "TopicPartition",
    "View",
    "config",
    "convert",
    "converters",
    "cut",
    "decoded",
    "encoded",
    "extractors",
    "fields",
    "files",
    "formats",
    "jackson",
    "joda",
    "joins",
    "listing",
    "loading",
    "needs_version",
    "open_store",
    "partitioners",
    "peek",
    "records",
    "route",
    "schema_of",
    "variable",
    "wiring",
]
