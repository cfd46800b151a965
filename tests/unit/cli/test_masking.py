from dataclasses import replace

import pytest

from kbackup.cli.restore import _offset_of
from kbackup.cli.terminal import MASK, Mask
from kbackup.errors import ConfigurationError, Issue
from tests.support.ended import ended


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        pytest.param("password s3cr/t+", "password ********", id="as it is"),
        pytest.param("?p=s3cr%2Ft%2B", "?p=********", id="in a URL"),
        pytest.param("s3cr/t+er than that", "********er than that", id="inside a word"),
        pytest.param("longs3cr/t+", "********", id="the longest first"),
        pytest.param(
            "GET /b?X-Amz-Credential=AKIA%2F1&X-Amz-Signature=ab12&x=1",
            "GET /b?X-Amz-Credential=********&X-Amz-Signature=********&x=1",
            id="presigned",
        ),
        pytest.param(
            "'Authorization': b'AWS4-HMAC-SHA256 Credential=AKIA/1, Signature=ab'",
            "'Authorization': b'AWS4-HMAC-SHA256 ********'",
            id="signed header",
        ),
        pytest.param("Bearer eyJhbGciOi.abc", "Bearer ********", id="token"),
        pytest.param("http://me:pass@host/", "http://me:********@host/", id="URL with password"),
        pytest.param("servers=me:pass@host:1", "servers=me:********@host:1", id="no scheme"),
        pytest.param("peek orders:0@4200", "peek orders:0@4200", id="a place"),
        pytest.param(
            "TOPIC[:PARTITION[@OFFSET]]", "TOPIC[:PARTITION[@OFFSET]]", id="what help calls a place"
        ),
        pytest.param("SASL authorization failed", "SASL authorization failed", id="a reason"),
        pytest.param("http://host:9000/a@b", "http://host:9000/a@b", id="URL with a port"),
    ],
)
def test_texts(text: str, masked: str) -> None:
    """Secrets are masked and the rest of the sentence stays."""
    mask = Mask(["s3cr/t+", "longs3cr/t+", "", "ab"])

    assert masked == mask.text(text)


def test_sentences_are_masked_at_any_depth_and_names_are_not() -> None:
    """Error texts in a summary are masked; topics and keys are data and stay."""
    error = Issue("x", "a", "hunter2", place={"key": "hunter2", "reason": "hunter2"})

    masked = Mask(["hunter2"]).of(ended(errors=[error], names=["hunter2"]))

    assert {"names": ["hunter2"]} == masked.facts
    place = {"key": "hunter2", "reason": MASK}
    assert (replace(error, why=MASK, place=place),) == tuple(masked.errors)


@pytest.mark.parametrize("text", ["orders:3", "orders:x@1", "orders:3@-1", "@", ""])
def test_what_is_wrong_with_a_place_is_shown(text: str) -> None:
    """The reason is not taken for a password."""
    with pytest.raises(ConfigurationError) as caught:
        _offset_of(text)

    assert caught.value.why == Mask().text(caught.value.why)
