"""The records that are measured: the same ones in the topics and in the producing loop."""

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Final

PARTITIONS: Final = 4
PROCESSES: Final = 2

_POOL_BYTES: Final = 16_000_000
"""Different values made up before the clock starts; well above the window of zstd at level 1."""

_FIRST_MS: Final = 1_790_000_000_000

LOADS: Final = ("4M-100B", "1M-1KB")
"""Those that are measured where none is named."""

CODECS: Final = ("none", "lz4", "zstd")
"""How the batches of a topic may be compressed."""

_NAMED: Final = re.compile(r"([1-9]\d*)([KM]?)-([1-9]\d*)(K?)B")
_TIMES: Final = {"": 1, "K": 1_000, "M": 1_000_000}

Arguments = tuple[bytes, bytes, int, list[tuple[str, bytes | None]]]
"""Value, key, timestamp in ms and headers of one record."""


@dataclass(frozen=True, slots=True)
class Load:
    """Records of one size.

    Attributes:
        name: For tables and topics.
        value_bytes: Of each value.
        records: In all partitions together.
        codec: One of `CODECS`: how the batches of its topic are compressed.
        batch_bytes: The most in a batch that has several records; 0 for what the clients make.
    """

    name: str
    value_bytes: int
    records: int
    codec: str = "none"
    batch_bytes: int = 0

    @property
    def topic(self) -> str:
        """Where they lie."""
        return f"bench-{self.name}"

    @property
    def bytes(self) -> int:
        """Of all values."""
        return self.records * self.value_bytes


def loads(
    scale: float,
    names: Sequence[str] = LOADS,
    codecs: Sequence[str] = CODECS[:1],
    batch_bytes: int = 0,
) -> list[Load]:
    """Return each load of *names*, its records times *scale*, for each of *codecs*.

    Raises:
        ValueError: If a name is not a number of records and their size, as ``20M-100B``.
    """
    return [_load(scale, name, codec, batch_bytes) for codec in codecs for name in names]


def _load(scale: float, name: str, codec: str, batch_bytes: int) -> Load:
    found = _NAMED.fullmatch(name)
    if found is None:
        raise ValueError(f"{name}: expected records and their size, such as 4M-100B or 1M-1KB")
    count, times, size, kilo = found.groups()
    records = _rounded(int(count) * _TIMES[times] * scale)
    label = name if codec == "none" else f"{name}-{codec}"
    label += f"-batches-{batch_bytes}" if batch_bytes else ""
    return Load(label, int(size) * _TIMES[kilo], records, codec, batch_bytes)


def _rounded(records: float) -> int:
    """Every partition, and every process, gets as many as the others."""
    return max(PARTITIONS, round(records / PARTITIONS) * PARTITIONS)


def arguments(value_bytes: int, count: int, seed: int) -> Iterator[Arguments]:
    """Yield *count* records; the objects are made before the first one is handed out."""
    chosen = random.Random(seed)
    pool = max(64, _POOL_BYTES // value_bytes)
    values = [_value(chosen, value_bytes) for _ in range(pool)]
    keys = [b"customer-%08d" % chosen.randrange(10**8) for _ in range(4096)]
    headers: list[list[tuple[str, bytes | None]]] = [
        [("trace-id", b"%032x" % chosen.getrandbits(128))] for _ in range(4096)
    ]
    rows = zip(cycle(values), cycle(keys), range(_FIRST_MS, _FIRST_MS + count), cycle(headers))
    return islice(rows, count)


def _value(chosen: random.Random, size: int) -> bytes:
    """A JSON text of *size* bytes, half of it words that repeat."""
    text, end = b'{"order":%d' % chosen.randrange(10**9), b',"note":"%s"}'
    for at in range(size):
        numbers = at, chosen.getrandbits(64), chosen.randrange(9999)
        item = b',"item_%d":{"sku":"%016x","currency":"EUR","price":%d}' % numbers
        if len(text) + len(item) + len(end % b"") > size:
            break
        text += item
    left = size - len(text) - len(end % b"")
    return text + end % (b"%0*x" % (left, chosen.getrandbits(4 * left)) if left else b"")
