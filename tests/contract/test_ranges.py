"""Every store that can read a part of an object: as it is in a whole read, or an error."""

import hashlib
import io
from uuid import uuid4

import pytest

from tests.contract.product import (
    CorruptObjectError,
    KbackupError,
    LocalS3,
    ObjectNotFoundError,
    Ranges,
    Store,
    StoreSettings,
    open_store,
)
from tests.contract.test_stores import BY_NIGHT, CLOUDS
from tests.support.truth import way_to

BODY = bytes(range(256)) * 40


@pytest.fixture(params=["memory", "s3", *BY_NIGHT])
def store(request: pytest.FixtureRequest, s3_server: LocalS3) -> Store:
    """A store with one object."""
    settings = StoreSettings(f"memory://{uuid4()}")
    if request.param in CLOUDS:
        settings = StoreSettings(request.getfixturevalue(CLOUDS[request.param]).place())
    elif request.param == "s3":
        s3_server.create_bucket("ranges")
        settings = way_to("ranges", s3_server)
    found = open_store(settings)
    digest = hashlib.sha256(BODY).hexdigest()
    found.put("a", io.BytesIO(BODY), sha256=digest, metadata={"n": "1"})
    return found


@pytest.mark.parametrize(("start", "length"), [(0, 1), (300, 777), (len(BODY) - 5, 5)])
def test_a_part_is_what_a_whole_read_has_there(store: Store, start: int, length: int) -> None:
    """A range read returns exactly the bytes that a whole read has there."""
    assert isinstance(store, Ranges)

    with store.open_range("a", start, length) as part:
        assert BODY[start : start + length] == part.read()


def test_a_part_that_is_not_there_is_no_shorter_part(store: Store) -> None:
    """A range of a missing object, or beyond an object's end, is an error, never a shorter part."""
    assert isinstance(store, Ranges)

    with pytest.raises(CorruptObjectError):
        store.open_range("a", len(BODY) - 5, 6)
    with pytest.raises(KbackupError):
        store.open_range("a", len(BODY) + 1, 6)
    with pytest.raises(ObjectNotFoundError):
        store.open_range("b", 0, 1)
