import gzip
import hashlib
import io
import resource
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbackup import files
from kbackup.errors import ConfigurationError, NoSpaceError
from kbackup.files import Section, Spool


@given(st.lists(st.binary(max_size=50)), st.integers(0, 100))
def test_a_spool_gives_back_what_was_written(chunks: list[bytes], memory_bytes: int) -> None:
    """Content, size and checksum are the same in memory and on disk."""
    whole = b"".join(chunks)
    with Spool(memory_bytes) as file:
        for chunk in chunks:
            file.write(chunk)
        facts = (file.size, file.sha256, file.in_memory)
        file.seek(0)

        assert whole == file.read()
        assert (len(whole), hashlib.sha256(whole).hexdigest(), len(whole) <= memory_bytes) == facts


@given(st.binary(max_size=60), st.integers(0, 60), st.integers(0, 60))
def test_a_section_reads_as_a_file_of_its_own(data: bytes, start: int, end: int) -> None:
    """A part of a body is sent as if it were all there is."""
    end = max(start, min(end, len(data)))
    section = Section(io.BytesIO(data), start, end - start)
    twice = section.read() + section.read()
    section.seek(0)

    assert data[start:end] == twice == section.read()


@pytest.mark.parametrize(
    "memory_bytes", [pytest.param(1 << 20, id="memory"), pytest.param(0, id="disk")]
)
def test_parquet_is_written_to_a_spool_and_read_from_it(memory_bytes: int) -> None:
    """A spool is a file to the libraries that write formats."""
    table = pa.table({"offset": range(1000)})
    with Spool(memory_bytes) as file:
        with pq.ParquetWriter(file, table.schema) as writer:
            writer.write_table(table)
        file.seek(0)

        assert pq.read_table(file).equals(table)


def test_gzip_is_written_to_a_spool() -> None:
    """What a compressor flushes and closes stays open for its owner."""
    with Spool(10) as file:
        with gzip.GzipFile(fileobj=file, mode="wb") as packed:
            packed.write(b"one\ntwo\n")
        file.seek(0)

        assert b"one\ntwo\n" == gzip.decompress(file.read())


def test_a_spool_is_read_by_lines() -> None:
    """Readers of line formats need no wrapper."""
    with Spool(0) as file:
        file.write(b"one\ntwo\n\nlast")
        file.seek(0)

        assert [b"one\n", b"two\n", b"\n", b"last"] == [*file]


def test_writing_elsewhere_than_at_the_end_is_refused() -> None:
    """A checksum that does not fit the content can never arise."""
    with Spool(100) as file:
        file.write(b"abc")
        file.seek(1)

        with pytest.raises(io.UnsupportedOperation):
            file.write(b"x")


def test_a_spool_can_start_again() -> None:
    """Nothing of the first try is left in content, size or checksum."""
    with Spool(2) as file:
        file.write(b"first try")
        file.restart()
        file.write(b"b")
        facts = (file.size, file.sha256)
        file.seek(0)

        assert (1, hashlib.sha256(b"b").hexdigest()) == facts
        assert b"b" == file.read()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def one_mib_files() -> Iterator[None]:
    """No file may have more than a MiB: what a full disk is like."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_on_disk_a_spool_has_no_name(folder: Path) -> None:
    """Nothing to guess, to link to, or to be left behind by a kill."""
    with Spool(0) as file:
        file.write(b"secret")

        assert (False, []) == (file.in_memory, [*folder.iterdir()])


@pytest.mark.parametrize(
    ("expected_bytes", "needed"),
    [pytest.param(0, "3 MiB", id="size unknown"), pytest.param(70 << 20, "70 MiB", id="known")],
)
def test_a_full_disk_says_what_is_needed(
    folder: Path, one_mib_files: None, expected_bytes: int, needed: str
) -> None:
    """E1: which folder, how much, and nothing is left there."""
    with Spool(0, expected_bytes=expected_bytes) as file:
        with pytest.raises(NoSpaceError, match=f"^no space in TMPDIR: about {needed} needed"):
            file.write(bytes(3 << 20))

        assert [] == [*folder.iterdir()]


@pytest.mark.parametrize(
    "name", [pytest.param("missing", id="missing"), pytest.param("f", id="file")]
)
def test_a_useless_tmpdir_is_refused_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """E2: the folder asked for or none: another may lie on the disk that was to be spared."""
    (tmp_path / "f").touch()
    monkeypatch.setenv("TMPDIR", str(tmp_path / name))

    with pytest.raises(ConfigurationError, match=f"TMPDIR={tmp_path}/{name} cannot be used"):
        files.spool_folder()


def test_the_spool_folder_is_tmpdir(folder: Path) -> None:
    """What is checked at the start is what is used later."""
    assert folder == files.spool_folder()


def test_what_is_spooled_to_disk_can_be_encrypted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No byte of it lies in TMPDIR as it is, and it reads as before, from any place."""
    monkeypatch.setattr(files, "_scrambles", True)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    data = b"CANARY-" * 40_000
    with Spool(0) as file:
        for start in range(0, len(data), 1111):
            file.write(data[start : start + 1111])
        file.flush()
        there = Path(f"/proc/self/fd/{file._file.raw.fileno()}").read_bytes()  # type: ignore[attr-defined]

        assert len(data) == len(there)
        assert b"CANARY" not in there
        for start in (0, 1, 15, 16, 17, 65_535, 65_536, 200_003):
            file.seek(start)
            assert data[start : start + 5000] == file.read(5000)
        file.restart()
        file.write(b"anew")
        file.seek(0)
        assert b"anew" == file.read()
