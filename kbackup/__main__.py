"""``python -m kbackup``."""

from kbackup.cli import main

main()
