"""Spark, started beside whatever the run does until it has work for it."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Final

from kbackup.engine.java import Java
from kbackup.engine.jvm import Spark, start
from kbackup.engine.settings import EngineSettings
from kbackup.errors import KbackupError

_LOOK_S: Final = 0.05
"""How often a run that waits for Spark looks whether it is to stop."""

_ENDING: Final = "spark-end"
"""The thread that sees a JVM out."""


class Starting:
    """A Spark on its way.

    Args:
        settings: Returns what Spark is given; called in another thread, for finding a Java takes
            a moment too.
    """

    def __init__(self, settings: Callable[[], EngineSettings]) -> None:
        self._settings = settings
        self._spark: Spark | None = None
        self._error: BaseException | None = None
        self._java: Java | None = None
        self._is_dropped = False
        self._earlier = _endings()  # before this one can be dropped, which would wait for itself
        self._thread = threading.Thread(target=self._start, name="spark-start")
        self._thread.start()

    def _start(self) -> None:
        for thread in self._earlier:
            thread.join()
        try:
            self._spark = start(self._settings(), self._launched)
        except BaseException as error:  # noqa: BLE001  (raised again where Spark is asked for)
            self._error = error

    def _launched(self, java: Java) -> None:
        self._java = java
        if self._is_dropped:
            java.drop()

    def is_awaited(self, stop: threading.Event) -> bool:
        """Wait for Spark, or until nobody needs it any more.

        Args:
            stop: Set once the run is to stop.

        Returns:
            Whether Spark is still needed; it may have failed to start.
        """
        while self._thread.is_alive() and not stop.is_set():
            self._thread.join(_LOOK_S)
        return not stop.is_set()

    def spark(self) -> Spark:
        """Return it once it takes work; the caller has to end it.

        Raises:
            SparkError: If it did not start.
            KbackupError: If there is no Java for it.
        """
        self._thread.join()
        if self._spark is None:
            assert self._error is not None  # noqa: S101  (the thread leaves one of the two)
            raise self._error
        return self._spark

    def drop(self) -> None:
        """End it unused: at once if it has just begun to start, else in the background."""
        self._is_dropped = True
        if self._java is not None:
            self._java.drop()
        _in_background(self._drop)

    def _drop(self) -> None:
        try:
            self.spark().end(is_idle=True)
        except KbackupError:
            return  # nobody needed it


def end_beside(spark: Spark, *, is_idle: bool) -> None:
    """End Spark and its JVM, which may take 0.4 s, while the run finishes its own work."""
    _in_background(partial(spark.end, is_idle=is_idle))


def _in_background(end: Callable[[], None]) -> None:
    """Run *end* in a thread that the next start waits for, and the interpreter's exit too."""
    threading.Thread(target=end, name=_ENDING).start()


def ended() -> None:
    """Wait until every earlier JVM of this process has ended."""
    for thread in _endings():
        thread.join()


def _endings() -> list[threading.Thread]:
    """Return the threads that see JVMs out."""
    this = threading.current_thread()
    return [one for one in threading.enumerate() if one.name == _ENDING and one is not this]
