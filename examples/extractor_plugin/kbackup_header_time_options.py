"""The options of `HeaderTimeExtractor`, in a module that is cheap to import."""

from kbackup.options import text

HEADER = text("timestamp.header", "Header that holds the time of a record.", "event-time")

OPTIONS = (HEADER,)
