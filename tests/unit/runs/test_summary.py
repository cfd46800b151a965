"""The line every command ends with."""

from kbackup.events import to_json
from kbackup.inspect.topics import StoredPartition
from kbackup.records import TopicPartition
from kbackup.runs.report import Summary


def test_what_is_there_is_counted_as_stored() -> None:
    """A look at a backup sums the bytes of its objects, of each topic and of all."""
    summary = Summary("r", "restore list")
    for topic, stored in (("orders", 3), ("orders", 4), ("payments", 5)):
        place = TopicPartition(topic, 0)
        summary.partitions.append(StoredPartition(place, "avro", 1, 0, 0, 1, stored, None, None))

    found = summary.finish()

    assert (12, [7, 5]) == (found.bytes_stored, [topic.bytes for topic in found.topics])
    assert ["topic"] * 3 == [next(iter(row)) for row in to_json(found)["partitions"]]


def test_a_sum_over_something_unknown_is_unknown() -> None:
    """A number that leaves out a partition looks like a backup that is too small."""
    summary = Summary("2026-11-21T02:00:00Z-7f3a", "restore verify")
    for partition, (records, objects) in enumerate([(10, 2), (None, 3)]):
        place = TopicPartition("orders", partition)
        summary.partitions.append(StoredPartition(place, "", objects, 0, 0, records, 0, None, None))

    found = summary.finish()

    assert (None, 5, 0) == (found.records, found.objects, found.bytes_read)
