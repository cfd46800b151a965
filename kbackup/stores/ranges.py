"""A few bytes of an object, without the rest of it."""

from typing import BinaryIO, Protocol, runtime_checkable


@runtime_checkable
class Ranges(Protocol):
    """A store for which reading a part of an object is cheaper than reading all of it."""

    def open_range(self, key: str, start: int, length: int) -> BinaryIO:
        """Fetch a part of an object, as a seekable file at 0.

        No checksum is compared: whoever asks for a part must be able to check it.  The file's
        attribute ``metadata`` is the object's user metadata, where the store has it at hand.

        Args:
            key: The object's.
            start: The first byte.
            length: How many; the object must have them.

        Raises:
            ObjectNotFoundError: No such object.
            CorruptObjectError: The object ends before, or was replaced meanwhile.
            StoreError: Otherwise.
        """
        ...
