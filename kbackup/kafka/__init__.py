"""The cluster.  Only this folder imports confluent_kafka, and others import only this module.

A `Connection` is plain data and crosses processes; it opens clients where they are used.
`KafkaSettings` is the one for a real cluster.  Rows cross this seam as columns.
"""

from kbackup.kafka.administration import (
    NO_ENDS,
    SETTLE_S,
    Cluster,
    NewTopic,
    Permissions,
    Topic,
    check_idle,
    create_topic,
)
from kbackup.kafka.connection import Connection, KafkaSettings, Outage, Way
from kbackup.kafka.transport import (
    NO_OTHERS,
    PATIENCE_S,
    LogStartMovedError,
    OffsetMovedError,
    Position,
    Positions,
    Reader,
    TakenOverError,
    Writer,
)

__all__ = [
    "NO_ENDS",
    "NO_OTHERS",
    "PATIENCE_S",
    "SETTLE_S",
    "Cluster",
    "Connection",
    "KafkaSettings",
    "LogStartMovedError",
    "NewTopic",
    "OffsetMovedError",
    "Outage",
    "Permissions",
    "Position",
    "Positions",
    "Reader",
    "TakenOverError",
    "Topic",
    "Way",
    "Writer",
    "check_idle",
    "create_topic",
]
