"""All of it is run in C, and without it."""

import pytest

from kbackup.batches import native


@pytest.fixture(params=["native", "python"], autouse=True)
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Choose one of them."""
    if request.param == "python":
        monkeypatch.setattr(native, "library", lambda: None)
    elif native.library() is None:
        pytest.skip("the library was not built here")
    return str(request.param)
