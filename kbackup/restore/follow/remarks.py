"""What a restore that follows reports of its topics: each thing once, for as long as it holds."""

from collections.abc import Mapping, Sequence
from threading import RLock
from typing import Any, Final

from kbackup.errors import Failure
from kbackup.events import Event, Tell, TopicPlanned, Warned
from kbackup.records import TopicPartition
from kbackup.restore.follow.asides import Subject
from kbackup.restore.planning.plan import PlannedTopic
from kbackup.restore.planning.standing import LEFT_OUT
from kbackup.runs.summary import Summary

_COUNTED: Final = {LEFT_OUT: "incomplete_partitions"}
"""Warnings that make a restore less than whole, and under what they are counted."""


class Remarks:
    """Reports what is new; what still holds at the end is in the summary too.

    Args:
        summary: Grows by what holds.
        lock: Guards it: tasks change it as well.
        tell: Takes events.
    """

    def __init__(self, summary: Summary, lock: RLock, tell: Tell) -> None:
        self._summary, self._lock, self._tell = summary, lock, tell
        self._plans: dict[tuple[str, str], TopicPlanned] = {}

    def plans(self) -> list[Event]:
        """Return the latest plan of each topic."""
        return [plan.to_dict() for plan in self._plans.values()]

    def plan(self, topic: PlannedTopic) -> None:
        """Report what is planned for a topic where that is news, and what is odd about it."""
        place, event = (topic.intent.source, topic.intent.target), topic.event()
        with self._lock:
            before = self._plans.get(place)
            self._plans[place] = event
        if before is None or (before.action, before.code) != (event.action, event.code):
            self._tell(event)
        self.odd((place[0], f"plan of {place[1]}"), topic.warnings)
        with self._lock:
            said = [entry.code for entry in self._summary.remarks.values()]
            for code, reason in _COUNTED.items():
                if code in said:
                    self._summary.skipped[reason] = said.count(code)

    def odd(
        self,
        about: tuple[str, str],
        said: Sequence[tuple[str, str]],
        keys: Mapping[str, str] | None = None,
    ) -> bool:
        """Report what is odd about something, if it is news; it replaces what was said before.

        Args:
            about: What it is about.
            said: Codes and sentences; none where nothing is odd any more.
            keys: The object that a sentence is about.

        Returns:
            Whether any of it is news.
        """
        mine = {(*about, code, text): text for code, text in said}
        with self._lock:
            remarks = self._summary.remarks
            for key in [key for key in remarks if key[:2] == about and key not in mine]:
                del remarks[key]
            fresh = [key for key in mine if key not in remarks]
            for key in fresh:
                of = {} if keys is None else {"key": keys[key[3]]}
                remarks[key] = self._event(key[2], key[3], of)
        for key in fresh:
            self._tell(remarks[key])
        return bool(fresh)

    def count(self, reason: str, number: int) -> None:
        """Put into the summary how many there are of what is left out, unless there are none."""
        with self._lock:
            if number:
                self._summary.skipped[reason] = number

    def set_aside(self, place: Subject, failure: Failure) -> None:
        """Report that *place* is set aside, and why."""
        text = f"{str(place) or 'the restore'} is set aside: {failure}"
        self._tell(self._event("set_aside", text, _placed(place)))

    def goes_on(self, place: Subject) -> None:
        """Report that *place* is no longer set aside."""
        what = f"{place}: the restore" if place else "the restore"
        self._tell(self._event("goes_on", f"{what} goes on", _placed(place)))

    def stand(self, place: Subject, failures: Sequence[Failure]) -> None:
        """Put into the summary why *place* is set aside: that is the reason of the exit code.

        Args:
            place: What is set aside, or is no longer.
            failures: Why; they replace what was said before.  None where it is no longer.
        """
        standing = self._summary.standing
        for number, failure in enumerate(failures):
            standing["aside", place, number] = failure.at(**_placed(place))
        number = len(failures)
        while standing.pop(("aside", place, number), None) is not None:
            number += 1

    def _event(self, code: str, text: str, place: Mapping[str, Any]) -> Warned:
        return Warned(code, text, self._summary.run, place)


def _placed(place: Subject) -> Mapping[str, Any]:
    if isinstance(place, TopicPartition):
        return {"topic": place.topic, "partition": place.partition}
    return {"topic": place} if place else {}
