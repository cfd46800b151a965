"""Where Arrow takes memory from, decided before it is imported.

Its own choice, mimalloc, keeps 4 MB from the start and gives little back.  Measured with a
whole-record file that is read ahead in one process, MB above what the imports take, CPU the same:

    100 B | 1 KB a record        at the peak     afterwards
    mimalloc                       30 | 28         24 | 28
    the C library's malloc         17 | 26         12 | 14
"""

import os
from typing import Final

_POOL: Final = ("ARROW_DEFAULT_MEMORY_POOL", "system")


def keep_little() -> None:
    """Have this process, and those it starts, keep little memory; what the user has set stays."""
    os.environ.setdefault(*_POOL)
