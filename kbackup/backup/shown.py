"""How the bytes of a record look in JSON."""

import base64


def shown_bytes(value: bytes | None) -> str | dict[str, str] | None:
    """Return *value* as JSON has it: null, text where it is UTF-8, else base64."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"$base64": base64.b64encode(value).decode()}
