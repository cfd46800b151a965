"""Where a backup's ledger is: beside ``topics.dir``, one folder for each that shares the place."""

import hashlib

from kbackup.backup.ledger.rows import OBJECTS, TOPICS
from kbackup.backup.ledger.stream import Stream
from kbackup.clock import Clock
from kbackup.naming import Layout
from kbackup.stores import Store


def folder(layout: Layout) -> str:
    """Return the ledger's folder; ends with ``/``."""
    digest = hashlib.sha256(layout.topics_dir.encode()).hexdigest()[:8]
    return f"{layout.records_prefix()}ledger/{digest}/"


def of_topics(store: Store, layout: Layout, clock: Clock) -> Stream:
    """Return the stream about all topics, and about the sinks that back them up."""
    return Stream(store, f"{folder(layout)}topics/", TOPICS, clock)


def of_topic(store: Store, layout: Layout, topic: str, clock: Clock) -> Stream:
    """Return the stream about one topic's objects."""
    return Stream(store, f"{folder(layout)}objects/{topic}/", OBJECTS, clock)
