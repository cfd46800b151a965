"""What Spark is given, what tasks are, and what they hand back: plain data."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from kbackup.errors import ConfigurationError, Issue
from kbackup.spark.channel import Line

DEFAULT_MASTER: Final = "local[*,4]"
"""All cores, a task tried up to four times: plain ``local[*]`` never retries."""


@dataclass(frozen=True, slots=True)
class Jvm:
    """A Java that can run Spark.

    Attributes:
        home: Its ``JAVA_HOME``.
        class_archive: Where the classes that Spark loads are kept ready for it, once
            `archive_classes` has made the file; None for nowhere.
    """

    home: str
    class_archive: Path | None = None


FindJvm = Callable[[], Jvm]
"""Finds a Java, called only when Spark is needed: it takes a moment."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What Spark is given.

    Attributes:
        master: A Spark master URL, as it is.
        conf: Spark properties, as they are; they win over ours.
        jvm: The Java to start, None for what the environment says.
        stop_timeout_s: How long tasks may take to end after they were asked to.
        modules: What tasks will import, in time for workers to share it.
    """

    master: str = DEFAULT_MASTER
    conf: Mapping[str, str] = field(default_factory=dict)
    jvm: Jvm | None = None
    stop_timeout_s: float = 30.0
    modules: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if str(self.conf.get("spark.speculation", "false")).lower() == "true":
            raise ConfigurationError(
                "spark.speculation=true",
                "two copies of one task would work on the same partition",
                "leave it off",
            )

    @property
    def is_local(self) -> bool:
        """Whether the workers are processes of this machine."""
        return self.master.startswith("local") and not self.master.startswith("local-cluster")


@dataclass(slots=True)
class Timings:
    """Where the time of a run with Spark went, summed over its jobs.

    Attributes:
        spark_start_s: Seconds until Spark took work.
        worker_start_s: Seconds from then until the first task ran in a Python worker.
        work_s: Seconds from there to the last report.
    """

    spark_start_s: float = 0.0
    worker_start_s: float = 0.0
    work_s: float = 0.0

    def to_dict(self) -> dict[str, float]:
        """Return the seconds by name, rounded to what a clock beside them would show."""
        return {name: round(seconds, 2) for name, seconds in asdict(self).items()}


class Report(Protocol):
    """What became of one unit: a frozen dataclass of plain values, which Spark pickles."""

    @property
    def failure(self) -> Issue | None:
        """What stopped the work on the unit; None if nothing has."""
        ...


@dataclass(frozen=True, slots=True)
class NotBegun:
    """The report of a task that could not begin, whatever its units.

    Attributes:
        failure: Why not.
    """

    failure: Issue


R = TypeVar("R", bound=Report)

Task = Callable[[Sequence[Any], Line], Iterator[R]]
"""A module's function, from units and the line to the driver to a report for each unit."""
