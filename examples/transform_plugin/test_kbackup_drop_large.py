import pytest
from kbackup_drop_large import DropLarge

from kbackup.testing import TransformContract


def transform_of(max_bytes):
    found = DropLarge()
    found.configure({"max.bytes": max_bytes}, "")
    return found


class TestDropLarge(TransformContract):
    @pytest.fixture(params=[0, 10, 1_000_000])
    def transform(self, request):
        return transform_of(request.param)

    def test_what_is_larger_is_left_out_and_no_value_is_not_large(self, records):
        found = transform_of(10).apply(records)

        kept = found.batch["value"].to_pylist()
        assert None in kept
        assert max(len(value) for value in kept if value is not None) <= 10
        assert found.left_out
