"""Back up Kafka topics to S3 and put them back: whole records, exactly once, with proof."""

from importlib.metadata import version

__version__ = version("kbackup")
"""The installed version, as ``kbackup --version`` prints it."""
