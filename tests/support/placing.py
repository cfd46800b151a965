"""Records at the offsets that they are to have: a topic with the gaps of another."""

from collections.abc import Sequence
from itertools import pairwise

from tests.support.cluster import Record, TestCluster, send

FILLER = Record(None, b"filler")


def place(
    cluster: TestCluster, topic: str, partition: int, records: Sequence[tuple[int, Record]]
) -> None:
    """Write records at their offsets to an empty partition.

    What comes before the first is deleted, as by retention.  In each gap is an aborted
    transaction; in one of a single offset the marker that ended the record's own.
    """
    if not records:
        return
    first = records[0][0]
    if first:
        cluster.write(topic, [FILLER] * first, partition)
        cluster.delete_records(topic, {partition: first})
    together: list[Record] = []
    for (offset, record), (following, _) in pairwise([*records, (records[-1][0] + 1, FILLER)]):
        gap = following - offset - 1
        if gap != 1:
            together.append(record)
        if gap:
            cluster.write(topic, together, partition)
            together = []
            _transaction(cluster, topic, partition, record if gap == 1 else None, gap - 1)
            cluster.settle(topic, partition)  # the marker comes after the answer
    cluster.write(topic, together, partition)
    assert records[-1][0] + 1 == cluster.end_offsets(topic)[partition]


def _transaction(
    cluster: TestCluster, topic: str, partition: int, kept: Record | None, dropped: int
) -> None:
    producer = cluster.producer(transactional_id=f"gaps-of-{topic}-{partition}")
    producer.init_transactions(60)
    producer.begin_transaction()
    send(producer, topic, [FILLER] * dropped if kept is None else [kept], partition)
    assert producer.flush(60) == 0
    if kept is None:
        producer.abort_transaction(60)
    else:
        producer.commit_transaction(60)
