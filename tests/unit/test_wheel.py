"""What kind of wheel is built, and what its name promises."""

import importlib.util
import sys
import sysconfig
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
INTERFACE = "hatchling.builders.hooks.plugin.interface"


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The build's hook, as hatchling calls it, with a compiler that writes an empty library."""
    names = INTERFACE.split(".")
    for end in range(1, len(names) + 1):
        monkeypatch.setitem(sys.modules, ".".join(names[:end]), ModuleType(names[end - 1]))
    monkeypatch.setattr(sys.modules[INTERFACE], "BuildHookInterface", object, raising=False)
    compiler = tmp_path / "cc"
    compiler.write_text('#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\n: > "$2"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    spec = importlib.util.spec_from_file_location("hatch_build_here", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = module.NativeLibrary()
    found.root, found.app = str(ROOT), SimpleNamespace(display_warning=pytest.fail)
    return found


def built(hook: Any) -> dict[str, Any]:
    """What the hook says of a wheel."""
    said: dict[str, Any] = {"force_include": {}}
    hook.initialize("standard", said)
    hook.finalize("standard", said, "")
    return said


def test_a_wheel_with_c_libraries_is_for_this_platform_alone(hook: Any) -> None:
    """Nobody has tried what manylinux promises, so the wheel's name does not promise it."""
    said = built(hook)

    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    assert (f"py3-none-{platform}", False) == (said["tag"], said["pure_python"])
    assert 3 == sum(name.endswith(".so") for name in said["force_include"].values())


def test_a_pure_wheel_can_be_asked_for(hook: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """KBACKUP_PURE=1 compiles nothing and asks for no compiler: the wheel is for any machine."""
    monkeypatch.setenv("KBACKUP_PURE", "1")
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC")

    said = built(hook)

    assert [] == hook.dependencies()
    assert {"tag", "pure_python"}.isdisjoint(said)
    assert not any(name.endswith(".so") for name in said["force_include"].values())
