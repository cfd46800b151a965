"""Configuration files on disk."""

from pathlib import Path

import pytest

from kbackup.config import files
from kbackup.config.files import FileProperty
from kbackup.errors import ConfigurationError


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        pytest.param("a.properties", b"a=\xc3\xa4", "\xe4", id="UTF-8"),
        pytest.param("a.properties", b"a=\xe4", "\xe4", id="ISO-8859-1"),
        pytest.param("a.PROPERTIES", b"a=b", "b", id="extension in capitals"),
        pytest.param("a.json", b'\xef\xbb\xbf{"a": "b"}', "b", id="byte order mark"),
        pytest.param("a.yml", b"a: b", "b", id="yml"),
    ],
)
def test_a_file_is_read_by_its_extension(
    tmp_path: Path, name: str, data: bytes, expected: str
) -> None:
    """A file's format is known by its extension."""
    path = tmp_path / name
    path.write_bytes(data)

    assert [FileProperty("a", expected, 1)] == files.read(path)


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        pytest.param("a.toml", b"a=b", "extension", id="another kind"),
        pytest.param("a.json", b"\xff", "UTF-8", id="no text"),
        pytest.param("a.json", b"{", "Expecting", id="broken"),
        pytest.param("a.json", b'{"": "b"}', "without a name", id="no name"),
        pytest.param("a.json", b'{"a": "\\ud800"}', "surrogate", id="half a character"),
        pytest.param("a.properties", b"=b", "without a name", id="no name before the sign"),
        pytest.param("a.properties", b"x" * 1_000_001, "larger", id="too large"),
        pytest.param("a.properties", b"a\n" * 10_001, "entries", id="too many entries"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_path(
    tmp_path: Path, name: str, data: bytes, says: str
) -> None:
    """A file that is not a configuration is named, with the reason."""
    path = tmp_path / name
    path.write_bytes(data)

    with pytest.raises(ConfigurationError, match=says) as caught:
        files.read(path)

    assert str(path) in caught.value.what


@pytest.mark.parametrize(
    ("name", "why"),
    [("gone.json", "No such file"), (".", "Is a directory"), ("gone", "No such file")],
)
def test_a_file_that_is_not_there_is_an_error(tmp_path: Path, name: str, why: str) -> None:
    """A missing file is reported as missing, whatever its extension."""
    folder = tmp_path / "folder.json"
    folder.mkdir()

    with pytest.raises(ConfigurationError, match=why):
        files.read(folder / name)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        pytest.param(0o600, False, id="owner"),
        pytest.param(0o640, False, id="group"),
        pytest.param(0o644, True, id="all"),
    ],
)
def test_open_to_others_means_any_user(tmp_path: Path, mode: int, expected: bool) -> None:
    """Only files that every user can read cause a warning."""
    path = tmp_path / "a.json"
    path.write_text("{}")
    path.chmod(mode)

    assert expected == files.is_open_to_others(path)
