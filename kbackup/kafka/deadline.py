"""Calls of the client that may never return."""

import threading
from collections.abc import Callable
from typing import Any


def within(seconds: float, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what *function* returns, or raise what it raises, if it ends within *seconds*.

    Else it is left alone in its thread, with all that it uses: touch nothing of that again.

    Raises:
        TimeoutError: If it has not ended by then.
    """
    result: list[Any] = []
    failure: list[BaseException] = []

    def call() -> None:
        try:
            result.append(function(*arguments))
        except BaseException as error:  # noqa: BLE001  (raised in the caller's thread)
            failure.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise TimeoutError
    if failure:
        raise failure[0]
    return result[0]
