"""``python -m kbackup_small_spans``: kbackup, whose spans meet at multiples of 2,000 offsets."""

from typing import Any

from kbackup.sink.spans import scheduler

small: Any = scheduler
small.EVERY = 2_000

from kbackup.cli import main  # noqa: E402  (after what it reads)

if __name__ == "__main__":
    main()
