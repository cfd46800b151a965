"""Scripts of the examples, run as a user runs them."""

import os
import subprocess
import sys
from pathlib import Path


def run(*words: str | Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run Python with these words, and return what it said."""
    return subprocess.run(
        [sys.executable, *map(str, words)],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
