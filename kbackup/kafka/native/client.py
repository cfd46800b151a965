"""A client of confluent-kafka's together with its handle in the library."""

from collections.abc import Mapping
from typing import Any

from kbackup.errors import KafkaError
from kbackup.kafka.native.library import library


class NativeClient:
    """A client, and what the functions of the library take for it.

    Attributes:
        client: The client, None once it was let go.
        functions: The library's.
        is_open: Whether it has not been let go.
    """

    def __init__(
        self, make: Any, properties: Mapping[str, Any], *, is_producer: bool, logger: Any
    ) -> None:
        """Make the client, with the library as one more plugin.

        Args:
            make: ``Consumer`` or ``Producer``.
            properties: The client's.
            is_producer: Which of the two.
            logger: Takes the client's log.

        Raises:
            KafkaException: What making the client raises.
            KafkaError: If librdkafka did not load the plugin.
        """
        loaded = library()
        self.functions = loaded.functions
        theirs = properties.get("plugin.library.paths")
        plugins = loaded.path if not theirs else f"{theirs};{loaded.path}"
        self.functions.expect(is_producer)
        self.client = make({**properties, "plugin.library.paths": plugins}, logger=logger)
        self._handle = self.functions.client_take()
        if self._handle is None:
            raise KafkaError("making a client", "librdkafka did not load kbackup's plugin")

    @property
    def is_open(self) -> bool:
        """Whether it has not been let go."""
        return self._handle is not None

    @property
    def handle(self) -> int:
        """What the functions take for the client.

        Raises:
            KafkaError: If it was let go, by another thread, say.
        """
        if self._handle is None:
            raise KafkaError("calling Kafka", "the client was closed")
        return int(self._handle)

    def leave(self) -> None:
        """Ask a thread that is inside the library for this client to come back at once."""
        if self._handle is not None:
            self.functions.client_leave(self._handle)

    def let_go(self) -> None:
        """Drop client and handle, when no thread is inside the library; may be repeated."""
        self.client = None
        handle, self._handle = self._handle, None
        if handle is not None:
            self.functions.client_free(handle)
