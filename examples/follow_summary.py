"""Run a backup from Python and act on its JSON lines and exit code, which are the stable contract.

python follow_summary.py sink --config orders.properties
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any


def run(words: Sequence[str]) -> dict[str, Any]:
    """Run ``kbackup`` with *words*; print each stored object, return the summary."""
    command = [sys.executable, "-m", "kbackup", *words, "--json"]
    summary: dict[str, Any] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for text in process.stdout:
            line = json.loads(text)
            match line["type"]:
                case "object":
                    print(f"stored {line['key']}: {line['records']} records")
                case "warning":
                    print(f"warning {line['code']}: {line['text']}")
                case "summary":
                    summary = line
                case _:
                    pass  # types and fields may be added: skip unknown ones
    return summary


def main() -> None:
    """Print how the run ended, and exit as it did."""
    summary = run(sys.argv[1:])
    print(f"{summary['command']} {summary['result']}: {summary['records']} records")
    for error in summary["errors"]:
        print(f"{error['code']}: {error['what']}. {error['do']}")
    sys.exit(summary["exit_code"])


if __name__ == "__main__":
    main()
