"""Where objects begin, as people name it: ``orders:3:4200``."""

import re
from typing import NamedTuple, Self


class Place(NamedTuple):
    """Where an object begins.

    Attributes:
        topic: The topic.
        partition: The Kafka partition.
        offset: Offset of the first record.
    """

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}:{self.offset}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what `str` returns.

        Raises:
            ValueError: If *text* is anything else.
        """
        match = re.fullmatch(r"([\w.-]+):(\d{1,10}):(\d{1,19})", text, re.ASCII)
        if match is None:
            raise ValueError(f"{text}: expected TOPIC:PARTITION:OFFSET")
        return cls(match[1], int(match[2]), int(match[3]))
