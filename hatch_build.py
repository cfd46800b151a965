"""Compiles kbackup's C libraries while a wheel is built; without a compiler the wheel has none.

The wheel with them is for this machine's system and processor, and says so: ``linux_x86_64``.  What
``manylinux`` promises was never tried.  zig comes as a wheel itself, and is asked for where there
is no compiler only.  With ``KBACKUP_PURE=1`` nothing is compiled, and the wheel is for any machine.
"""

import importlib.util
import os
import platform
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_SPEC = importlib.util.spec_from_file_location(
    "native_build", Path(__file__).parent / "kbackup" / "native_build.py"
)
native: Any = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(native)


class NativeLibrary(BuildHookInterface):
    """Adds the libraries to a wheel, or to the checkout where that is installed as it is."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """Return what the build needs besides hatchling."""
        needs_zig = not _is_pure() and native.compiler() is None and _zig_builds_here()
        return ["ziglang>=0.15"] if needs_zig else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and say where the libraries belong."""
        self._scratch = tempfile.TemporaryDirectory()
        is_editable = version == "editable"
        if not is_editable and (commit := native.commit()):
            said = Path(self._scratch.name, native.COMMIT.name)
            said.write_text(f"{commit}\n")
            build_data["force_include"][str(said)] = str(native.COMMIT.relative_to(self.root))
        for one in () if _is_pure() else native.ALL:
            built = one.library if is_editable else Path(self._scratch.name) / one.library.name
            tag = self._compile(one, built)
            if tag is None:
                break
            if not is_editable:
                build_data["force_include"][str(built)] = str(one.library.relative_to(self.root))
                build_data["pure_python"] = False
                build_data["tag"] = f"py3-none-{tag}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what is in the wheel now."""
        self._scratch.cleanup()

    def _compile(self, one: Any, built: Path) -> str | None:
        """Return the platform that the library is for, None where nothing compiles it."""
        command = native.compiler() or []
        if not command and _zig_builds_here():
            command = native.zig(platform.machine())
        why = "there is no C compiler"
        if command:
            caches = {"ZIG_GLOBAL_CACHE_DIR": self._scratch.name}
            try:
                native.build(command, one, built, environ=caches)
            except subprocess.CalledProcessError as error:
                why = error.stderr.strip() or str(error)
            except (OSError, subprocess.SubprocessError) as error:
                why = str(error)
            else:
                return sysconfig.get_platform().replace("-", "_").replace(".", "_")
        self.app.display_warning(
            f"kbackup is built without its C libraries, and moves records in Python, at half the "
            f"speed, and Avro at less than a twentieth: {why}"
        )
        return None


def _zig_builds_here() -> bool:
    return sys.platform == "linux" and platform.libc_ver()[0] == "glibc"


def _is_pure() -> bool:
    return os.environ.get("KBACKUP_PURE", "") not in ("", "0")
