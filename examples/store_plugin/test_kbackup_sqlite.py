import pytest
from kbackup_sqlite import SqliteStore

from kbackup.stores import StoreSettings
from kbackup.testing import StoreContract


class TestSqliteStore(StoreContract):
    @pytest.fixture
    def store(self, tmp_path):
        return SqliteStore(StoreSettings(f"sqlite://{tmp_path}/backup.db"))


@pytest.mark.parametrize("url", ["sqlite://backup.db", "sqlite:///folder/"])
def test_a_url_that_is_no_file_is_refused(url):
    with pytest.raises(ValueError, match="full path"):
        SqliteStore.check_url(url)
