"""Summaries and their rows, made of what is worth saying of them."""

from dataclasses import fields
from typing import Any, cast

from kbackup.errors import Issue
from kbackup.events import Ended, PartitionRow, Progress, TopicSums, Warned
from kbackup.records import TopicPartition
from kbackup.runs.history import RunRecord

RUN = "2026-11-21T02:00:00Z-7f3a"


def row(topic: str = "orders", partition: int = 0, **more: Any) -> PartitionRow:
    """A partition's row, of which only *more* is known."""
    said = {"topic": topic, "partition": partition, **more}
    return RunRecord({"partitions": [said]}).rows[0]


def progress(topic: str = "orders", partition: int = 0, **more: Any) -> Progress:
    """News of a partition, of which only *more* is known."""
    given = {"run": RUN, "committed": None, "records": 0, "objects": 0, "open": 0} | more
    return Progress(where=TopicPartition(topic, partition), **given)


def issue(**said: Any) -> Issue:
    """An error, from JSON that need not have all of it."""
    return Issue.from_dict({"what": "", **{name: text or "" for name, text in said.items()}})


def warned(code: str = "", text: str = "", **place: Any) -> Warned:
    """A warning."""
    place.pop("type", None)
    return Warned(code, text, place, run=place.pop("run", None))


def ended(**said: Any) -> Ended:
    """A summary, from JSON that need not have all of it."""
    given: dict[str, Any] = {"run": RUN, "command": "sink", "result": "ok", "exit_code": 0} | said
    kinds = {"partitions": row, "topics": TopicSums, "errors": issue, "warnings": warned}
    for name, kind in kinds.items():
        rows = given.get(name) or ()
        given[name] = [cast(Any, kind)(**each) if isinstance(each, dict) else each for each in rows]
    own = {each.name for each in fields(Ended)}
    facts = {name: value for name, value in given.items() if name not in own | {"type", "v"}}
    return Ended(**{name: value for name, value in given.items() if name in own}, facts=facts)
