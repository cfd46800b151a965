"""From the text of ``.proto`` files to the messages that they declare, by Protobuf's own compiler.

The compiler runs in a separate process, because a registry's text is not trusted, and because the
compiler writes its errors to a console.  0.25 s per schema, once in a process.
"""

import base64
import binascii
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import Any, Final

from kbackup.errors import ConfigurationError

try:
    import grpc_tools
    from google.protobuf import descriptor_pb2, descriptor_pool, message
except ImportError as problem:
    raise ConfigurationError(
        "Protobuf needs libraries that are not installed",
        str(problem),
        "pip install 'kbackup[protobuf]'",
    ) from problem

_ROOT: Final = "kbackup_root.proto"
_SECONDS: Final = 60
_HEAD: Final = 'syntax = "proto3"; package {};'
_SAID: Final = re.compile(rf"^(?:{re.escape(_ROOT)}:|(?=[\w./-]+\.proto:))\s*(.*)$", re.MULTILINE)

KNOWN: Final = {
    "confluent/meta.proto": _HEAD.format("confluent")
    + """
import "google/protobuf/descriptor.proto";
message Meta {
  string doc = 1;
  map<string, string> params = 2;
  repeated string tags = 3;
}
extend google.protobuf.FileOptions { Meta file_meta = 1088; }
extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
""",
    "confluent/type/decimal.proto": _HEAD.format("confluent.type")
    + "message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }",
    "confluent/types/decimal.proto": 'syntax = "proto3"; '
    'import public "confluent/type/decimal.proto";',
    "google/type/date.proto": _HEAD.format("google.type")
    + "message Date { int32 year = 1; int32 month = 2; int32 day = 3; }",
    "google/type/timeofday.proto": _HEAD.format("google.type")
    + "message TimeOfDay { int32 hours = 1; int32 minutes = 2; int32 seconds = 3; "
    "int32 nanos = 4; }",
}
"""Files that registries know implicitly, without a reference in the schema."""


@lru_cache(100)
def compiled(text: str, imports: tuple[tuple[str, str], ...] = ()) -> Any:
    """Return the descriptor of the file *text*.

    Args:
        text: A ``.proto`` file, or base64 of its descriptor, as some clients register it.
        imports: Name and text of each file that it imports, directly or not.

    Raises:
        ValueError: If the compiler refuses them.
    """
    pool = descriptor_pool.DescriptorPool()
    root = _packed(text)
    given = {**KNOWN, **dict(imports)}
    try:
        if root is None:
            texts = {**given, _ROOT: text}
            found = _compiled(texts, [_ROOT])
        else:
            root.name = _ROOT
            found = [*_compiled(given, list(root.dependency)), root]
        for each in found:
            pool.Add(each)
        return pool.FindFileByName(_ROOT)
    except (TypeError, KeyError) as problem:
        raise ValueError(f"it is not a Protobuf schema: {problem}") from None


def message_at(file: Any, indexes: Sequence[int]) -> Any:
    """Return the descriptor of the message that *indexes* select, from the outermost inwards.

    Raises:
        ValueError: If there is none.
    """
    found, messages = None, [*file.message_types_by_name.values()]
    for index in indexes:
        if not 0 <= index < len(messages):
            raise ValueError(f"its schema has no message {'.'.join(map(str, indexes))}")
        found = messages[index]
        messages = list(found.nested_types)
    return found


def _packed(text: str) -> Any:
    """Return the descriptor encoded in *text* as base64, None if it is a ``.proto`` file."""
    try:
        data = base64.b64decode(text, validate=True)
        return descriptor_pb2.FileDescriptorProto.FromString(data)
    except (ValueError, binascii.Error, message.DecodeError):
        return None


def _compiled(texts: dict[str, str], wanted: Sequence[str]) -> list[Any]:
    """Return the descriptors of *wanted* and of all that they import, each after its imports."""
    if not wanted:
        return []
    with tempfile.TemporaryDirectory(prefix="kbackup-proto-") as folder:
        for name, text in texts.items():
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts or "\0" in name:
                raise ValueError(f"it refers to a file called {name!r}")
            place = Path(folder) / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
        out = Path(folder) / "kbackup.out"
        known = files(grpc_tools).joinpath("_proto")
        command = [
            sys.executable, "-m", "grpc_tools.protoc", "--proto_path=.",
            f"--proto_path={known}", "--include_imports", f"--descriptor_set_out={out}", *wanted,
        ]  # fmt: skip
        try:
            done = subprocess.run(  # noqa: S603  (our own interpreter; texts are in files)
                command, capture_output=True, text=True, timeout=_SECONDS, check=False, cwd=folder
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise ValueError(f"its compiler took longer than {_SECONDS} s") from None
        if done.returncode or not out.exists():
            raise ValueError(_why(done.stderr) or f"its compiler ended with {done.returncode}")
        return list(descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file)


def _why(said: str) -> str:
    """Return the compiler's messages about files, without those about its log."""
    lines = [f"line {found}" if found[:1].isdigit() else found for found in _SAID.findall(said)]
    return "; ".join(lines[:3]) or said.strip()[-200:]
