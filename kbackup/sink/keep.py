"""Store a file without ever replacing more by less.

A rerun writes the same key again: with the same records, or, where the first run closed a short
last file, with more.  What is already there is replaced only by a superset of its records.
"""

import logging
from collections.abc import Iterator

import pyarrow as pa

from kbackup.alignment import pairs
from kbackup.errors import TopicChangedError
from kbackup.flow.write import ClosedFile
from kbackup.records import Facts, TopicIdentity
from kbackup.stores import ObjectHead, Store

_log = logging.getLogger(__name__)


def keep(store: Store, file: ClosedFile) -> Facts:
    """Make sure that *file*'s records are stored under its key, and say what lies there now.

    Returns:
        The facts of the object under the key: this file's, or those of a longer object with the
        same records that was there already.

    Raises:
        TopicChangedError: If the object that is there holds other records: the topic was
            recreated, or the bucket holds another cluster's backup.
        StoreError: If the store refuses.
    """
    head = None
    while not _put(store, file, head):
        head = store.head(file.key)
        while head is not None:
            longer = _longer(store, file, head)
            if longer is not None:
                _log.warning("%s holds these records and more; it is kept", file.key)
                return longer
            before, head = head, store.head(file.key)
            if head == before:  # else another run put more while this one compared
                break
    return file.facts


def _put(store: Store, file: ClosedFile, replaced: ObjectHead | None) -> bool:
    """Put the file in the place of that object, or of none; whether nobody else was faster."""
    return store.put(
        file.key,
        file.body,
        sha256=file.facts.sha256,
        metadata=file.metadata,
        if_absent=replaced is None,
        if_match=None if replaced is None else replaced.etag,
    )


def _longer(store: Store, file: ClosedFile, head: ObjectHead) -> Facts | None:
    """Return what is known of the object at *head* if it holds more than *file*, else None."""
    if file.identity.conflicts(TopicIdentity.from_metadata(head.metadata)):
        raise _other_topic(file, "it was written from a topic with another id")
    there = Facts.from_metadata(head.metadata)
    if there is None:
        _log.warning("%s is there, written by another tool; it is compared", file.key)
    if there == file.facts:
        return None
    shorter = _common_records(store, file)
    if there is None:
        return file.facts if shorter == "ours" else None
    return there if there.covers(file.facts) and shorter != "theirs" else None


def _common_records(store: Store, file: ClosedFile) -> str:
    """Compare row by row; return which is shorter: "ours", "theirs" or "neither"."""
    file.body.seek(0)
    ours = _rows(file, file.body)
    with store.open(file.key) as body:
        for mine, other in pairs(ours, _rows(file, body)):
            if mine is None or other is None:
                return "ours" if mine is None else "theirs"
            if not mine.equals(other):
                raise _other_topic(file, "it holds other records")
    return "neither"


def _other_topic(file: ClosedFile, why: str) -> TopicChangedError:
    return TopicChangedError(
        f"{file.key} already exists and belongs to another topic: {why}",
        "the topic was deleted and created again, or this is another cluster's backup",
        "choose another topics.dir or bucket; the existing object is left as it is",
        key=file.key,
    )


def _rows(file: ClosedFile, body: object) -> Iterator[pa.RecordBatch]:
    extension = file.spec.extension()
    return file.spec.open_format().read(body, file.spec.view, extension, file.spec.options)  # type: ignore[arg-type]
