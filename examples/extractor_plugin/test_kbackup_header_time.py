import pyarrow as pa
import pytest
from kbackup_header_time import HeaderTimeExtractor

from kbackup.records import SCHEMA
from kbackup.testing import ExtractorContract


def extractor_of(name):
    found = HeaderTimeExtractor()
    found.configure({"timestamp.header": name})
    return found


class TestHeaderTimeExtractor(ExtractorContract):
    @pytest.fixture
    def extractor(self):
        return extractor_of("event-time")


def test_the_last_number_of_the_header_is_the_time():
    headers = [
        [("at", b"7"), ("other", b"9")],
        [("at", b"1"), ("at", b"2")],
        [("at", b"soon")],
        [("at", None)],
        [],
    ]
    rows = [
        dict.fromkeys(SCHEMA.names) | {"offset": at, "timestamp": 5, "timestamp_type": 0}
        | {"headers": [{"key": name, "value": value} for name, value in each]}
        for at, each in enumerate(headers)
    ]  # fmt: skip

    found = extractor_of("at").extract(pa.RecordBatch.from_pylist(rows, SCHEMA), 0)

    assert found.to_pylist() == [7, 2, None, None, None]
