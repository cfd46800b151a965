"""Where memory comes from, decided before Arrow is imported.

Arrow's own choice, mimalloc, keeps 4 MB from the start and gives little back.  Measured with a
full-record file that is read ahead in one process, MB above what the imports take, CPU the same:

    100 B | 1 KB a record        at the peak     afterwards
    mimalloc                       30 | 28         24 | 28
    the C library's malloc         17 | 26         12 | 14

The C library has a heap for each of the first threads, eight to a core.  What one thread takes and
another gives back, as batches that are read ahead and the client's copies of records do, leaves
holes in all of them.  Measured as above, with a Kafka client that writes the 1 KB records: 170 MB
with many heaps, 115 with two, 90 with one, CPU the same.
"""

import os
from contextlib import suppress
from typing import Final

_POOL: Final = ("ARROW_DEFAULT_MEMORY_POOL", "system")

_ARENA_MAX: Final = -8
"""``M_ARENA_MAX`` of glibc's ``mallopt``."""

_OWN: Final = ("MALLOC_ARENA_MAX", "GLIBC_TUNABLES")
"""What a user sets the number of heaps by."""


def keep_little() -> None:
    """Have this process, and those it starts, keep little memory; what the user has set stays."""
    os.environ.setdefault(*_POOL)


def share_one_heap() -> None:
    """Have all threads of this process take memory from one heap; what the user has set stays.

    To be called before there is a second thread.  C libraries other than glibc stay as they are.
    """
    import ctypes  # noqa: PLC0415  (commands that only look have no need of it)

    if not any(name in os.environ for name in _OWN):
        with suppress(AttributeError, OSError):
            ctypes.CDLL(None).mallopt(_ARENA_MAX, 1)
