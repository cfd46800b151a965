"""Pages of unfinished uploads."""

from datetime import UTC, datetime
from typing import Any

import pytest

from kbackup.errors import StoreError
from kbackup.stores.s3.bucket import S3Bucket

BEGUN = datetime(2026, 11, 22, tzinfo=UTC)


class Pages:
    """Answers with one page after the other, and notes where each was asked to begin."""

    def __init__(self, *pages: dict[str, Any]) -> None:
        self.pages = list(pages)
        self.asked: list[dict[str, Any]] = []

    def send(self, _operation: str, _about: str, **params: Any) -> Any:
        self.asked.append(params)
        return self.pages.pop(0)

    def resource(self, about: str) -> str:
        return f"s3://b/{about}"


def page(key: str, **more: Any) -> dict[str, Any]:
    """A page of one upload."""
    return {"Uploads": [{"Key": key, "UploadId": "id", "Initiated": BEGUN}]} | more


def test_all_pages_are_read() -> None:
    """All pages of unfinished uploads are listed."""
    more = {"IsTruncated": True, "NextKeyMarker": "a", "NextUploadIdMarker": "id"}
    pages: Any = Pages(page("a", **more), page("b"))

    found = [one.key for one in S3Bucket(pages).unfinished("t/")]

    assert ["a", "b"] == found
    assert {"Prefix": "t/", "KeyMarker": "a", "UploadIdMarker": "id"} == pages.asked[1]


@pytest.mark.parametrize("more", [{}, {"NextKeyMarker": "a", "NextUploadIdMarker": "id"}])
def test_a_listing_that_does_not_go_on_is_an_error(more: dict[str, Any]) -> None:
    """Part of a listing is never taken for the whole, and no listing is read for ever."""
    pages: Any = Pages(*[page("a", IsTruncated=True, **more)] * 3)

    with pytest.raises(StoreError, match="not complete"):
        list(S3Bucket(pages).unfinished("t/"))
