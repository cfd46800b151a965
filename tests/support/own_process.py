"""A measurement in a process of its own: what other tests have left in this one moves by itself."""

import os
import subprocess
import sys


def measured(script: str, *words: str) -> float:
    """Run a Python file with the paths of this process; return the number that it prints."""
    done = subprocess.run(
        [sys.executable, script, *words],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 == done.returncode, done.stderr
    return float(done.stdout)
