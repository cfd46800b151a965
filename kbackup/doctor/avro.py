"""The C library that reads Avro values: there, or what its absence costs."""

from kbackup.connect import native
from kbackup.doctor import Check


def reader() -> Check:
    """Return how Avro values would be read: nothing but the speed depends on it."""
    name = "Avro reader"
    why = native.why_not()
    if not why:
        return Check("configuration", name, "ok", "Avro values are read by the C library")
    text = f"Avro values are read by Arrow and in Python, at about half the speed: {why}"
    do = "install kbackup where there is a C compiler (cc), or from a wheel for this platform"
    return Check("configuration", name, "warn", text, do)
