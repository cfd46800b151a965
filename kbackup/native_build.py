"""Build and load kbackup's C libraries, and tell one state of its sources from another.

Needs the standard library and a C compiler alone.

Used by ``hatch_build.py`` while kbackup is being installed, when nothing of it can be imported
yet, and by the session that runs the C under sanitizers.
"""

import ctypes
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, NamedTuple


class Native(NamedTuple):
    """A C library.

    Attributes:
        folder: Where its sources are.
        library: Where it is in a checkout and in a wheel.
        other: The variable that names another build of it, such as one with sanitizers.
    """

    folder: Path
    library: Path
    other: str

    def digest(self) -> str | None:
        """Return what tells these sources from others; None where there are none: in a wheel."""
        sources = sorted(self.folder.glob("*.[ch]"))
        if not sources:
            return None
        found = hashlib.sha256()
        for source in sources:
            found.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
        return found.hexdigest()[:16]


def _in(folder: str, name: str, other: str) -> Native:
    place = Path(__file__).parent / folder / "native"
    return Native(place, place / name, other)


KAFKA: Final = _in("kafka", "libkbackup.so", "_KBACKUP_NATIVE_LIBRARY")
AVRO: Final = _in("connect", "libavro.so", "_KBACKUP_NATIVE_AVRO")
BATCHES: Final = _in("batches", "libbatches.so", "_KBACKUP_NATIVE_BATCHES")
ALL: Final = (KAFKA, AVRO, BATCHES)

_FLAGS: Final = (
    *("-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra"),
    *("-fPIC", "-fvisibility=hidden", "-shared", "-pthread"),
)

GLIBC: Final = "2.17"
"""What zig's builds run with: every Linux since 2014."""

COMMIT: Final = Path(__file__).with_name("commit.txt")
"""In a wheel: the commit that it was built from."""


def commit() -> str:
    """Return the commit of these sources, with what was changed since; empty if nothing says it."""
    if COMMIT.exists():
        return COMMIT.read_text().strip()
    checkout = Path(__file__).parent.parent
    if not (checkout / ".git").exists():
        return ""
    line = ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        return subprocess.run(line, check=True, capture_output=True, text=True).stdout.strip()  # noqa: S603  (our own words)
    except (OSError, subprocess.SubprocessError):
        return ""


@cache
def source_digest() -> str:
    """Return what tells the package's Python sources from others; 20 ms, once in a process."""
    package = Path(__file__).parent
    found = hashlib.sha256()
    for source in sorted(package.rglob("*.py")):
        found.update(str(source.relative_to(package)).encode() + b"\0" + source.read_bytes())
    return found.hexdigest()[:16]


def compiler() -> list[str] | None:
    """Return this machine's C compiler as a command: ``$CC``, else ``cc``; None without one."""
    command = shlex.split(os.environ.get("CC", "")) or ["cc"]
    return command if shutil.which(command[0]) else None


def zig(machine: str) -> list[str]:
    """Return the compiler of the ``ziglang`` wheel as a command, for old Linux on *machine*."""
    return [sys.executable, "-m", "ziglang", "cc", "-target", f"{machine}-linux-gnu.{GLIBC}", "-s"]


def build(
    command: Sequence[str],
    native: Native,
    target: Path | None = None,
    flags: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> None:
    """Compile a library, and put it at *target* when it is whole.

    Args:
        target: The library's file, None for its place.

    Raises:
        OSError: If the compiler does not start.
        subprocess.CalledProcessError: If it fails; ``stderr`` says why.
    """
    target = target or native.library
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    sources = map(str, sorted(native.folder.glob("*.c")))
    line = [
        *command, *_FLAGS, *flags, f'-DKB_DIGEST="{native.digest()}"',
        *sources, "-o", str(partial), "-ldl",
    ]  # fmt: skip
    try:
        subprocess.run(  # noqa: S603  (our own words, and the compiler of who builds)
            line, check=True, capture_output=True, text=True, timeout=300,
            env={**os.environ, **(environ or {})},
        )  # fmt: skip
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


class UnavailableError(Exception):
    """There is no library here that works; the text says why."""


def load(native: Native, functions: Mapping[str, tuple[Any, ...]]) -> tuple[SimpleNamespace, Path]:
    """Return the functions of a library, by their names without ``kb_``, and its file.

    Args:
        functions: Result and arguments of each; ``digest`` among them.

    Raises:
        UnavailableError: If it does not work here.
    """
    path = Path(os.environ.get(native.other, native.library))
    if not path.exists():
        raise UnavailableError("no C compiler was found during installation to build it")
    found = SimpleNamespace()
    try:
        loaded = ctypes.CDLL(str(path))
        for name, (result, *arguments) in functions.items():
            function = getattr(loaded, f"kb_{name}")
            function.restype, function.argtypes = result, arguments
            setattr(found, name, function)
    except (OSError, AttributeError) as error:
        raise UnavailableError(str(error)) from error
    if native.digest() not in (None, found.digest().decode()):
        raise UnavailableError("it is older than its sources: install the checkout again")
    return found, path
