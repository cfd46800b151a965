"""What brokers of each release have answered, byte for byte: ``tests/recorded`` says how."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parents[1] / "recorded"

ADDRESS: Final = b"127.0.0.1"
"""Where a broker says it is; four bytes with its port follow, which are zero in a recording."""

_VERSIONS: Final = 18

Asked = tuple[int, int, bytes]
"""Kind, version and body of a request."""


def exchanges(release: str) -> Iterator[tuple[Asked, bytes]]:
    """What a broker of a release was asked, and what it answered, in order."""
    for line in FOLDER.joinpath(f"kafka-{release}.txt").read_text().splitlines():
        kind, version, request, answer = line.split(" ")
        yield (int(kind), int(version), bytes.fromhex(request)), bytes.fromhex(answer)


def offered(release: str) -> dict[int, tuple[int, int]]:
    """The lowest and the highest version of each kind of request, as a broker has told them."""
    (answer,) = {answer for (kind, _, _), answer in exchanges(release) if kind == _VERSIONS}
    rows = struct.iter_unpack(">hhh", answer[6:])  # behind the error, and how many there are
    return {kind: (lowest, highest) for kind, lowest, highest in rows}
