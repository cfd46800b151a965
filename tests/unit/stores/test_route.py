"""The way to an S3 server."""

import pytest

from kbackup.errors import ConfigurationError
from kbackup.stores.s3.options import addressing_style, proxies_of


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({"s3.proxy.url": "http://proxy:3128"}, "http://proxy:3128", id="a URL"),
        pytest.param({"s3.proxy.url": "proxy:3128"}, "http://proxy:3128", id="without a scheme"),
        pytest.param({"s3.proxy.url": "[::1]:3128"}, "http://[::1]:3128", id="an address"),
        pytest.param(
            {"s3.proxy.url": "http://proxy", "s3.proxy.user": "a@b", "s3.proxy.password": "c:d"},
            "http://a%40b:c%3Ad@proxy",
            id="user and password",
        ),
    ],
)
def test_a_proxy_is_named_by_its_url(options: dict[str, str], expected: str) -> None:
    """The same for what is asked with and without TLS."""
    assert {"http": expected, "https": expected} == proxies_of(options)


@pytest.mark.parametrize("url", ["[", "http://[x]:1", "http://proxy:x", "ftp://proxy", "http://"])
def test_what_is_no_proxy_is_refused(url: str) -> None:
    """A proxy URL that is none is refused by the property's name, without a traceback."""
    with pytest.raises(ConfigurationError, match=r"s3\.proxy\.url"):
        proxies_of({"s3.proxy.url": url})


def test_only_amazons_servers_have_accelerate_endpoints() -> None:
    """Beside another server's URL, acceleration is refused before anything is sent."""
    with pytest.raises(ConfigurationError, match="accelerate endpoints"):
        addressing_style({"s3.wan.mode": True}, "http://minio:9000")

    assert "virtual" == addressing_style({"s3.wan.mode": True})
