"""The gate: what a machine lacks is named, and hides no test."""

import importlib.util
import re
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def gate() -> Any:
    """The checkout's ``noxfile.py``."""
    spec = importlib.util.spec_from_file_location("gate", ROOT / "noxfile.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Session:
    """A session of nox that runs nothing and notes what it is told."""

    posargs: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.warned: list[str] = []

    def run(self, *words: str, **_: object) -> None:
        """Note a command."""
        self.ran.append(" ".join(words))

    def log(self, _line: str) -> None:
        """Say nothing."""

    def warn(self, line: str) -> None:
        """Note a warning."""
        self.warned.append(line)

    def skip(self, *_: object) -> None:
        """End the whole session, as nox does, with exit code 0."""
        pytest.fail("the session was skipped")


def test_a_machine_without_a_compiler_runs_the_tests_and_names_what_it_leaves_out(
    gate: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a C compiler the gate leaves out the sanitizers alone, by name."""
    monkeypatch.setenv("CC", "/nowhere/cc")
    session = Session()

    gate.through(session, gate.sanitized, gate.tests)

    left_out = "LEFT OUT: the C libraries under sanitizers: there is no C compiler"
    assert [left_out] == session.warned
    assert ["-m pytest"] == [" ".join(line.split()[1:3]) for line in session.ran]


class Building(Session):
    """A session that leaves an empty wheel where one is built."""

    def run(self, *words: str, **_: object) -> None:
        """Note a command."""
        super().run(*words)
        if "-w" in words:
            Path(words[words.index("-w") + 1], "kbackup_kafka-0-py3-none-any.whl").touch()

    def chdir(self, _folder: str) -> AbstractContextManager[None]:
        """Stay."""
        return nullcontext()


def test_a_wheel_whose_c_libraries_nobody_loaded_is_said_to_be_one(
    gate: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a C compiler the wheel is installed and run, and what was not seen is named."""
    monkeypatch.setenv("CC", "/nowhere/cc")
    session = Building()

    gate.through(session, gate.installed)

    assert ["LEFT OUT: the C libraries of the wheel: there is no C compiler"] == session.warned
    assert "kbackup config show" in session.ran[-1]


def test_no_step_of_the_gate_ends_it(gate: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step runs where there is no compiler, and the tests last: a skip would hide them."""
    monkeypatch.setenv("CC", "/nowhere/cc")
    session = Building()

    gate.ci(session)

    assert ["LEFT OUT: the C libraries of the wheel: there is no C compiler"] == session.warned
    ran = " ; ".join(session.ran)
    assert "-m nox -s lint" in ran
    assert ran.index("_generate.py --check") < ran.index("pip wheel")
    assert " ".join(("-m pytest", *gate.SIDE_BY_SIDE)) in session.ran[-1]


def test_a_bare_machine_has_neither_java_nor_a_compiler(gate: Any) -> None:
    """What a release is tried on has Python, and nothing to compile or to run Java with."""
    with gate.bare_machine() as variables:
        there = {program.name for program in Path(variables["PATH"]).iterdir()}

    assert set() == there & {"cc", "gcc", "clang", "c++", "java", "javac", "mvn", "docker"}
    assert "python3" in there


def test_each_test_that_the_gate_names_exists() -> None:
    """A file, folder or test that ``noxfile.py`` names is there: a move cannot leave one behind."""
    named = re.findall(r'"(tests/[^":]+)(?:::(\w+))?"', (ROOT / "noxfile.py").read_text())
    missing = [
        (path, test)
        for path, test in named
        if not (ROOT / path).exists() or f"def {test}" not in _text(ROOT / path)
    ]

    assert named
    assert [] == missing


def _text(path: Path) -> str:
    return path.read_text() if path.is_file() else "def "


def test_lint_is_style_types_and_imports(gate: Any) -> None:
    """What the gate runs beside the documentation and the wheel is all of it."""
    session = Session()

    gate.lint(session)

    words = [line.removeprefix(f"{gate.BIN}/").split() for line in session.ran]
    assert ["ruff", "ruff", "mypy", "lint-imports"] == [first for first, *_ in words[:4]]
    assert [["check", "."], ["format", "--check", "."]] == [more for _, *more in words[:2]]


@pytest.mark.parametrize("folder", ["simulation", "conformance", "contract", "integration"])
def test_the_net_reaches_kbackup_through_one_module(folder: str) -> None:
    """What moves in kbackup is followed in one file of each folder that proves it."""
    reaching = re.compile(r"^ *(?:from|import) kbackup\b", re.MULTILINE)

    found = [path.name for path in (ROOT / "tests" / folder).glob("*.py")
             if reaching.search(path.read_text())]  # fmt: skip

    assert ["product.py"] == found
