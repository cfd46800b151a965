import pytest
from kbackup_hex import HexConverter

from kbackup.testing import ConverterContract


class TestHexConverter(ConverterContract):
    @pytest.fixture(params=[False, True])
    def converter(self, request):
        found = HexConverter()
        found.configure({"upper": request.param})
        return found
