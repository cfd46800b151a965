"""The way to the server: how a bucket is addressed, and through which proxy."""

from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import quote, urlsplit

from kbackup.errors import ConfigurationError
from kbackup.stores.s3.options import ACCELERATE, PATH_STYLE, PROXY_PASSWORD, PROXY_URL, PROXY_USER


def addressing_style(
    options: Mapping[str, Any], endpoint_url: str | None = None
) -> Literal["path", "virtual"]:
    """Return where the bucket's name stands: in the path, or in the host name.

    Args:
        options: Those of the store.
        endpoint_url: The server's, None for Amazon's own.

    Raises:
        ConfigurationError: If it would have to be in both, or the server is not Amazon's and would
            have to be.
    """
    if not ACCELERATE.of(options):
        return "path" if PATH_STYLE.of(options) else "virtual"
    if endpoint_url is not None:
        raise ConfigurationError(
            f"{ACCELERATE.name} cannot be used",
            "store.url names a server, and only Amazon's own have accelerate endpoints",
            f"set {ACCELERATE.name}=false, or remove store.url",
            property=ACCELERATE.name,
        )
    if options.get(PATH_STYLE.name):
        raise ConfigurationError(
            f"{ACCELERATE.name} cannot be used",
            "an accelerate endpoint has the bucket in its host name",
            f"set {PATH_STYLE.name}=false",
            property=ACCELERATE.name,
        )
    return "virtual"


def proxies_of(options: Mapping[str, Any]) -> dict[str, str] | None:
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
