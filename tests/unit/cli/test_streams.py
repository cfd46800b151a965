import io

from kbackup.cli.terminal import OutputStream


def test_bytes_reach_a_pipe_as_they_are() -> None:
    """A pipe receives a record's bytes unchanged, text or not."""
    raw = io.BytesIO()

    stream = OutputStream(io.TextIOWrapper(raw, "ascii"))
    stream.write_bytes(b"k\xff\xc3\xa9\n")

    assert b"k\xff\xc3\xa9\n" == raw.getvalue()  # which ends with the stream
    assert stream.is_open


def test_text_and_bytes_keep_their_order() -> None:
    """Lines and records come out as they went in."""
    raw = io.BytesIO()
    stream = OutputStream(io.TextIOWrapper(raw, "utf-8"))

    stream.write("a")
    stream.write_bytes(b"\xff")
    stream.write("b")

    assert b"a\xffb" == raw.getvalue()


def test_bytes_in_text_are_escaped() -> None:
    """Where only text can be written, other bytes are shown as escapes."""
    text = io.StringIO()

    OutputStream(text).write_bytes(b"k\xff")

    assert "k\\xff" == text.getvalue()
