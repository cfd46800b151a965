"""The way to the server: how a bucket is addressed, and through which proxy."""

from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import quote, urlsplit

from kbackup.errors import ConfigurationError
from kbackup.stores.s3_options import ACCELERATE, PATH_STYLE, PROXY_PASSWORD, PROXY_URL, PROXY_USER


def addressing(options: Mapping[str, Any]) -> Literal["path", "virtual"]:
    """Return where the bucket's name stands: in the path, or in the host name.

    Raises:
        ConfigurationError: If it would have to be in both.
    """
    if not ACCELERATE.of(options):
        return "path" if PATH_STYLE.of(options) else "virtual"
    if options.get(PATH_STYLE.name):
        raise ConfigurationError(
            f"{ACCELERATE.name} cannot be used",
            "an accelerate endpoint has the bucket in its host name",
            f"set {PATH_STYLE.name}=false",
            property=ACCELERATE.name,
        )
    return "virtual"


def proxies(options: Mapping[str, Any]) -> dict[str, str] | None:
    """Return the proxy, by the scheme of what is asked through it; None where none is given.

    Raises:
        ConfigurationError: If it is no URL.
    """
    text = PROXY_URL.of(options)
    if text is None:
        return None
    wrong = ConfigurationError(
        f"{PROXY_URL.name} is not the URL of a proxy",
        "expected http://HOST:PORT",
        "correct it",
        property=PROXY_URL.name,
    )
    try:
        url = urlsplit(text if "://" in text else f"http://{text}")
        _ = url.port
    except ValueError as error:  # such as brackets around what is no address
        raise wrong from error
    if url.scheme not in ("http", "https") or not url.hostname:
        raise wrong
    own, _, place = url.netloc.rpartition("@")
    user, password = PROXY_USER.of(options), PROXY_PASSWORD.of(options)
    if user is not None:
        own = quote(user, safe="") + (f":{quote(password, safe='')}" if password else "")
    found = f"{url.scheme}://{own}@{place}" if own else f"{url.scheme}://{place}"
    return {"http": found, "https": found}
