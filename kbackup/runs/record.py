"""What the record of a run says: the only place that names the fields that are read of it."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from kbackup import moments
from kbackup.events import Event
from kbackup.records import TopicPartition
from kbackup.reports import HeldUp

GOOD: Final = frozenset({0, 3})
"""Exit codes of a run that backed up all there was, even if it had to say something about it."""

NO_TOPIC: Final = "no_topic"
"""Code of the warning that the topics that were asked for match none."""

_RUN_ID: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)-[0-9a-f]{4}", re.ASCII)

_PAST: Final = ("result", "exit_code", "seconds", "records", "objects", "bytes_stored", "errors")


@dataclass(frozen=True, slots=True)
class RunRecord:
    """The summary of one run, as a later one reads it.

    Attributes:
        said: The summary line, as the version that ran printed it, with its ``topics_dir``.
    """

    said: Mapping[str, Any]

    @property
    def run(self) -> str:
        """The run's id."""
        return str(self.said.get("run"))

    @property
    def command(self) -> str | None:
        """What was run."""
        return self.said.get("command")

    @property
    def topics_dir(self) -> str | None:
        """Which of the backups in its bucket it is of."""
        return self.said.get("topics_dir")

    @property
    def cluster_id(self) -> str:
        """The cluster; empty where that is not known."""
        return str(self.said.get("cluster_id") or "")

    @property
    def group(self) -> str | None:
        """The consumer group that kept its positions."""
        return self.said.get("group")

    def keeps_positions_in(self, group: str) -> bool:
        """Whether *group* is its group, or with a partition map that of one of its partitions."""
        if self.group == group:
            return True
        base, _, partition = group.rpartition(".")
        is_mapped = self.said.get("partition_map") not in (None, "same")
        return is_mapped and base == self.group and partition.isascii() and partition.isdigit()

    @property
    def names(self) -> list[str]:
        """The topics it was asked for; those of earlier versions may be a pattern."""
        return self.said.get("names") or []

    @property
    def rows(self) -> Sequence[Event]:
        """The rows of its partitions, each with its topic and partition."""
        return self.said.get("partitions") or ()

    @property
    def topic_settings(self) -> Mapping[str, Event]:
        """Each topic's id, number of partitions and settings at the time."""
        return self.said.get("topic_settings") or {}

    @property
    def pattern(self) -> str | None:
        """The ``topics.regex`` that a sink was asked for, None where it was given names.

        Records of versions before 0.2 keep it among their names, which may be a topic's as well.
        """
        if "topics_regex" in self.said:
            given = self.said["topics_regex"]
            return given if isinstance(given, str) else None
        is_one = len(self.names) == 1 and self.names[0] not in self.topic_settings
        return str(self.names[0]) if is_one else None

    @property
    def is_good(self) -> bool:
        """Whether the run ended well."""
        return self.said.get("exit_code") in GOOD

    @property
    def matched_nothing(self) -> bool:
        """Whether the run found no topic to back up."""
        warnings = self.said.get("warnings")
        return not self.rows and any(
            isinstance(warning, dict) and warning.get("code") == NO_TOPIC
            for warning in (warnings if isinstance(warnings, list) else ())
        )

    @property
    def covered(self) -> set[str]:
        """What the run was asked for, and the topics it met."""
        return {row["topic"] for row in self.rows} | set(self.names)

    @property
    def started(self) -> datetime | None:
        """When the run started, None where its id does not say so."""
        match = _RUN_ID.fullmatch(self.run)
        try:
            return None if match is None else datetime.fromisoformat(match.group(1))
        except ValueError:  # the 31st of February
            return None

    @property
    def success(self) -> datetime | None:
        """Up to when everything is known to be backed up, judging by this record.

        It says so as ``last_success``: the start of a good run, since what was written to Kafka
        later may not be in it; of a run that follows, the time up to which it has stored all; of a
        run that was not good, what an earlier one said.  A run that matched no topic is not good.
        """
        given = self.said.get("last_success")
        if self.matched_nothing and self.is_good and given == self.run[:20]:
            return None  # as versions before 0.2 said
        if "last_success" not in self.said:
            return self.started if self.is_good else None
        try:
            time = None if not isinstance(given, str) else datetime.fromisoformat(given)
        except ValueError:
            return None
        if time is None or time.tzinfo is not None:
            return time
        return time.replace(tzinfo=UTC)

    @property
    def held_up(self) -> dict[TopicPartition, HeldUp]:
        """The partitions that open transactions held up, by the names they are stored under."""
        found = {}
        given = self.said.get("held_up")
        for row in given if isinstance(given, list) else ():
            with suppress(KeyError, TypeError, ValueError):
                found[TopicPartition(row["topic"], row["partition"])] = HeldUp.from_dict(row)
        return found

    @property
    def trouble(self) -> str:
        """Why the run is not good, in a few words; empty where it does not say."""
        if self.matched_nothing:
            return f"the newest run found no topic that matches {', '.join(self.names)}"
        errors = self.said.get("errors")
        found = [error.get("what") for error in errors or () if isinstance(error, dict)]
        more = f", and {len(found) - 1} more" if len(found) > 1 else ""
        return f"{found[0]}{more}" if found else ""

    def past(self) -> Event:
        """Return what ``status`` shows of the run."""
        return {
            "run": self.said.get("run"),
            "started": None if self.started is None else moments.text(self.started),
            **{name: self.said.get(name) for name in _PAST},
        }
