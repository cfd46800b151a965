"""Spark SQL, for a command that asks a question instead of running a task."""

import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from kbackup.spark.jvm import end_beside, ended, start
from kbackup.spark.settings import EngineSettings

_CONF: Final = {
    "spark.driver.memory": "2g",  # joins and sorts are the JVM's own work, on this machine
    "spark.driver.maxResultSize": "256m",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.shuffle.partitions": "8",
}


@contextmanager
def session(settings: EngineSettings) -> Iterator[Any]:
    """Yield a ``SparkSession`` on a JVM of its own; times are UTC.

    Raises:
        SparkError: If Spark does not start.
    """
    ended()
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)  # errors are raised
    with tempfile.TemporaryDirectory(prefix="kbackup-sql-") as folder:
        conf = {**_CONF, "spark.sql.warehouse.dir": folder, **settings.conf}
        spark = start(replace(settings, conf=conf))
        try:
            from pyspark.sql import SparkSession  # noqa: PLC0415

            found = SparkSession(spark.context)
            try:
                yield found
            finally:
                SparkSession._instantiatedSession = None  # noqa: SLF001  (the next has its own)
                SparkSession._activeSession = None  # noqa: SLF001
        finally:
            end_beside(spark, is_idle=False)
