"""The options of `SqliteStore`, in a module that is cheap to import."""

from kbackup.options import duration

TIMEOUT = duration("sqlite.timeout", "How long to wait for another writer.", 60.0, example="10s")

OPTIONS = (TIMEOUT,)
