"""Where a user's caches are: downloads, class archives, lock files."""

import os
from pathlib import Path


def user_cache() -> Path | None:
    """Return kbackup's folder among the user's caches; nothing is made or looked at.

    None where the user has no home, as in a container.
    """
    xdg = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # a relative path there is to be ignored: XDG Base Directory Specification, "Basics"
    if xdg.is_absolute():
        return xdg / "kbackup"
    try:
        return Path("~/.cache/kbackup").expanduser()
    except RuntimeError:
        return None
