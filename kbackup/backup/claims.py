"""What an object says about itself, and whether that fits its name and its siblings.

An object says it in its user metadata and, where its format has room, in the file too.  Copies
under another name, another topic's object, or a name that was altered contradict themselves; that
is known before the first row is read.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Final

from kbackup import formats
from kbackup.backup.file_sets import BackupFile, FileSet
from kbackup.flow.write import siblings_of
from kbackup.naming import View
from kbackup.plurals import counted, form
from kbackup.records import UNKNOWN, Facts, TopicIdentity, TopicPartition

_NUMBERS: Final = ("first-offset", "last-offset", "records")


@dataclass(frozen=True, slots=True)
class Claim:
    """What one file says about itself; None, or not known, where it does not say.

    Attributes:
        file: The object.
        facts: By the object's metadata.
        identity: Of the topic, by the object's metadata.
        partition: It was written for, by the object's metadata.
        siblings: The parts of its records that are in objects beside it, by its metadata.
        where: The partition it was written for, by the file's own metadata.
        numbers: First offset, last offset and records, by the file's own metadata.
        own_identity: Of the topic, by the file's own metadata.
    """

    file: BackupFile
    facts: Facts | None = None
    identity: TopicIdentity = UNKNOWN
    where: TopicPartition | None = None
    numbers: tuple[int, int, int] | None = None
    own_identity: TopicIdentity = UNKNOWN
    partition: int | None = None
    siblings: frozenset[View] = frozenset()


@dataclass(frozen=True, slots=True)
class Problem:
    """One contradiction.

    Attributes:
        code: ``wrong_topic``, ``count_mismatch``, ``corrupt`` or ``unsupported_object``, as
            findings have it.
        key: The object.
        text: What is wrong.
    """

    code: str
    key: str
    text: str


def of(file: BackupFile, metadata: Mapping[str, str], body: BinaryIO) -> Claim:
    """Return what *file* says about itself; leaves *body* at its start.

    A damaged file yields nothing here: reading its rows reports the damage.
    """
    facts, identity = Facts.from_metadata(metadata), TopicIdentity.from_metadata(metadata)
    own = _own(file, body)
    where = numbers = None
    try:
        if "topic" in own and "partition" in own:
            where = TopicPartition(own["topic"], int(own["partition"]))
        if all(name in own for name in _NUMBERS):
            first, last, records = (int(own[name]) for name in _NUMBERS)
            numbers = first, last, records
    except ValueError:
        pass  # reading the rows says so
    own_identity = TopicIdentity.from_metadata(own)
    return Claim(
        file, facts, identity, where, numbers, own_identity, partition_of(metadata),
        siblings_of(metadata),
    )  # fmt: skip


def partition_of(metadata: Mapping[str, str]) -> int | None:
    """Return which partition an object says it was written for; None where it does not."""
    said = metadata.get("partition", "")
    return int(said) if said.isdecimal() else None


def _own(file: BackupFile, body: BinaryIO) -> Mapping[str, str]:
    try:
        return formats.by_name(file.format).own_metadata(body)
    finally:
        body.seek(0)


def problems(
    files: FileSet, claims: Sequence[Claim], identity: TopicIdentity = UNKNOWN
) -> Iterator[Problem]:
    """Yield what the objects of a set claim that contradicts their names or each other.

    Args:
        files: The set.
        claims: What each of its objects says.
        identity: Which topic they are of, as far as that is known.
    """
    for claim in claims:
        yield from _alone(files, claim)
        if identity.conflicts(claim.identity) or identity.conflicts(claim.own_identity):
            text = "it belongs to another topic, judging by the topic's id"
            yield Problem("wrong_topic", claim.file.key, text)
    said = [claim for claim in claims if claim.facts is not None]
    for claim in said[1:]:
        yield from _beside(said[0], claim)


def _alone(files: FileSet, claim: Claim) -> Iterator[Problem]:
    key, facts, start = claim.file.key, claim.facts, files.start_offset
    if claim.where is not None and claim.where != files.where:
        text = f"it was written as partition {claim.where.partition} of {claim.where.topic}"
        yield Problem("wrong_topic", key, text)
    elif claim.partition not in (None, files.where.partition):
        yield Problem("wrong_topic", key, f"it was written as partition {claim.partition}")
    if claim.identity.conflicts(claim.own_identity):
        yield Problem("wrong_topic", key, "the ids of its topic in file and metadata differ")
    if facts is not None and facts.first_offset != start:
        text = f"it was stored with first offset {facts.first_offset}, its name says {start}"
        yield Problem("corrupt", key, text)
    elif claim.numbers is not None and claim.numbers[0] != start:
        text = f"its first record has offset {claim.numbers[0]}, its name says {start}"
        yield Problem("corrupt", key, text)
    elif facts is not None and claim.numbers is not None:
        yield from _counts(key, facts, *claim.numbers[1:])


def _counts(key: str, facts: Facts, last: int, records: int) -> Iterator[Problem]:
    if records != facts.records:
        were = form(facts.records, "was", "were")
        text = f"it holds {counted(records, 'record')}; {facts.records} {were} stored"
        yield Problem("count_mismatch", key, text)
    elif last != facts.last_offset:
        text = f"its last record has offset {last}; it was stored with {facts.last_offset}"
        yield Problem("count_mismatch", key, text)


def _beside(first: Claim, other: Claim) -> Iterator[Problem]:
    mine, its = first.facts, other.facts
    if mine is None or its is None:
        return
    key, beside = other.file.key, first.file.key
    if (mine.records, mine.last_offset) != (its.records, its.last_offset):
        text = (
            f"it was stored with {counted(its.records, 'record')} up to offset {its.last_offset}, "
            f"{beside} with {mine.records} up to {mine.last_offset}"
        )
        yield Problem("count_mismatch", key, text)
    if first.identity.conflicts(other.identity):
        yield Problem("wrong_topic", key, f"it belongs to another topic than {beside}")
