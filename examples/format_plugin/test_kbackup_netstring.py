import pytest
from kbackup_netstring import NetstringFormat

from kbackup.testing import FormatContract


class TestNetstringFormat(FormatContract):
    @pytest.fixture
    def form(self):
        return NetstringFormat()
