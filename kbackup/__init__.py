"""Back up Kafka topics to S3 and put them back: full records, exactly once."""

__version__ = "0.2.0"
"""As ``kbackup --version`` prints it; the package takes it from here."""
