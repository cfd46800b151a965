"""The last line of defence against secrets in what is printed.

Nothing above this layer puts a secret into an event, an error or a log line on purpose; a server's
answer or a library's message may.  So each line and each free text passes through here.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import quote, quote_plus

MASK: Final = "********"

_SHORTEST: Final = 4
"""A shorter secret is not searched for: hiding every ``a`` would hide the message."""

_FREE_TEXT: Final = frozenset({"text", "what", "why", "do", "next", "reason"})
"""The fields made of sentences.  Names, keys and numbers are data and stay as they are."""

_CREDENTIALS: Final = (
    re.compile(r"(X-Amz-(?:Signature|Credential|Security-Token)=)[^&\s'\"]+", re.IGNORECASE),
    re.compile(r"(\b(?:AWS4-HMAC-SHA256|Basic|Bearer) )[\w+/=.~-]{8,}[^\r\n'\"]*"),
    re.compile(r"(://[^/\s:@]*:)[^/\s@]+(?=@)"),
    # without a scheme; orders:0@4200 is a place in a backup, and TOPIC[:PARTITION[@OFFSET]] help
    re.compile(r"((?:^|[\s,=])[^\s,=:/@\[\]]+:)(?!\d+@)[^\s,/@]+(?=@[\w.\[])"),
)
"""What signed requests and URLs with a password look like; the first group may be seen."""


class Mask:
    """Replaces the given secrets, and whatever looks like a signed request, by asterisks."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        found = {secret for secret in secrets if len(secret) >= _SHORTEST}
        forms = {form(secret) for secret in found for form in (str, quote, quote_plus)}
        longest_first = sorted(forms, key=len, reverse=True)
        self._secrets = re.compile("|".join(map(re.escape, longest_first))) if forms else None

    def text(self, text: str) -> str:
        """Return *text* without secrets."""
        if self._secrets is not None:
            text = self._secrets.sub(MASK, text)
        for credentials in _CREDENTIALS:
            text = credentials.sub(rf"\1{MASK}", text)
        return text

    def event(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """Return *event* with its free texts, those of nested entries too, without secrets."""
        return {name: self._value(name, value) for name, value in event.items()}

    def _value(self, name: str, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value) if name in _FREE_TEXT else value
        if isinstance(value, Mapping):
            return self.event(value)
        if isinstance(value, list | tuple):
            return [self._value(name, item) for item in value]
        return value
