"""What to run, and how.  ``nox -s ci`` is all of it; it uses the environment nox itself is in."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import nox
from nox.command import CommandFailed

from kbackup import native_build as native
from kbackup.local.downloads import RELEASES

nox.options.default_venv_backend = "none"
nox.options.sessions = ["ci"]
nox.options.error_on_external_run = False

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# hundreds of commands are started, of which each would compile all that it imports: a second

PYTHON = sys.executable
BIN = Path(PYTHON).parent
SIDE_BY_SIDE = ("-n", "2", "--dist", "worksteal")
"""Two processes share the tests, each with a Kafka and an S3 server of its own: a test waits for
them as much as it computes.  The one that is done first takes over half of what the other has left:
a file of tests that each take a minute would otherwise keep one process alone for ten.
"""

SITE = "tests/integration/test_examples.py::test_the_site_builds_without_a_warning"
"""The test that builds the documentation."""

BUDGET = "on two quiet cores: lint, docs and installed 3 minutes, tests 10.5"
"""What the gate may take, beside the installation of the checkout, which is not its own."""


def tool(session: nox.Session, name: str, *arguments: str) -> None:
    """Run a tool of this environment."""
    session.run(str(BIN / name), *arguments, external=True)


@nox.session
def lint(session: nox.Session) -> None:
    """Style, types, the direction of imports, and how large the house is, which stops nothing."""
    tool(session, "ruff", "check", ".")
    tool(session, "ruff", "format", "--check", ".")
    tool(session, "mypy")
    tool(session, "lint-imports")
    session.run(PYTHON, "tools/size.py", external=True)


@nox.session
def docs(session: nox.Session) -> None:
    """The documentation: its generated parts up to date, warnings as errors."""
    session.run(PYTHON, "docs/_generate.py", "--check", external=True)
    session.run(PYTHON, "-m", "pytest", "-q", "-m", "", SITE, external=True)


@nox.session
def wheel(session: nox.Session) -> None:
    """Build the wheel, install it elsewhere, and run its command on a bare machine."""
    through(session, installed)


def installed(session: nox.Session) -> None:
    """Install the wheel elsewhere, and run its command on a bare machine.

    Raises:
        LeftOutError: If this machine has no compiler: whether C libraries load was not seen.
    """
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        session.run(
            PYTHON, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, ".", external=True
        )
        (built,) = place.glob("kbackup_kafka-*.whl")
        session.run(
            PYTHON, "-m", "venv", "--system-site-packages", str(place / "venv"), external=True
        )
        python = str(place / "venv" / "bin" / "python")
        session.run(
            python, "-m", "pip", "install", "-q", "--no-deps", "--force-reinstall", str(built),
            external=True,
        )  # fmt: skip
        site = str(Path(nox.__file__).parent.parent)  # the libraries of this environment
        with session.chdir(folder), bare_machine() as variables:
            for words in (["--version"], ["sink", "--help"], ["plugins"], ["config", "show"]):
                session.run(
                    str(place / "venv" / "bin" / "kbackup"), *words,
                    env={**variables, "PYTHONPATH": site}, silent=True, external=True,
                )  # fmt: skip
            if native.compiler() is None:
                raise LeftOutError("the C libraries of the wheel: there is no C compiler")
            session.run(
                python, "-c",
                "from kbackup.kafka.native import library; print(library().path); "
                "from kbackup.connect import avro_walk; assert avro_walk.library() is not None",
                env={"PYTHONPATH": site}, external=True,
            )  # fmt: skip


class LeftOutError(Exception):
    """A step cannot be done on this machine; the text says why."""


@nox.session
def sanitize(session: nox.Session) -> None:
    """The C libraries under AddressSanitizer and UndefinedBehaviorSanitizer, in all their tests."""
    try:
        sanitized(session)
    except LeftOutError as why:
        session.skip(str(why))


def sanitized(session: nox.Session) -> None:
    """Run the tests of the C libraries under the sanitizers.

    They need the compiler's runtime; a finding ends the process, and so the session.

    Raises:
        LeftOutError: If this machine has no compiler.
    """
    compiler = native.compiler()
    if compiler is None:
        raise LeftOutError("the C libraries under sanitizers: there is no C compiler")
    with tempfile.TemporaryDirectory() as folder:
        kafka, avro, batches = (
            Path(folder) / f"{name}.so" for name in ("kafka", "avro", "batches")
        )
        flags = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
        native.build(compiler, native.KAFKA, kafka, flags)
        native.build(compiler, native.AVRO, avro, flags)
        native.build(compiler, native.BATCHES, batches, flags)
        runtime = subprocess.run(  # noqa: S603  (a compiler's name)
            [*compiler, "-print-file-name=libasan.so"],
            check=True, capture_output=True, text=True,
        ).stdout.strip()  # fmt: skip
        session.run(
            PYTHON, "-m", "pytest", "-p", "no:cacheprovider", "-k", "not python",
            "tests/contract/test_readers.py", "tests/contract/test_writers.py",
            "tests/unit/connect/test_avro_columns.py", "tests/unit/connect/test_avro_walk.py",
            "tests/unit/batches",
            "tests/property/test_connect.py::test_all_rows_at_once_are_read_as_one_by_one",
            *session.posargs,
            env={
                native.KAFKA.other: str(kafka),
                native.AVRO.other: str(avro),
                native.BATCHES.other: str(batches),
                "ARROW_DEFAULT_MEMORY_POOL": "system",  # which the sanitizer sees
                "LD_PRELOAD": runtime,
                "ASAN_OPTIONS": "detect_leaks=0",  # Python's own, and all that it never frees
            },
            external=True,
        )  # fmt: skip


@nox.session
def tests(session: nox.Session) -> None:
    """The tests of the gate, those with a real Kafka and S3 server too; arguments go to pytest."""
    share = () if session.posargs else (*SIDE_BY_SIDE, "--durations=25")
    session.run(PYTHON, "-m", "pytest", *share, *session.posargs, external=True)


HIDDEN = (
    "docker", "jar", "java", "jcmd", "keytool", "mvn",
    "c++", "c89", "c99", "cc", "clang", "cpp", "g++", "gcc",
    "aarch64-linux-gnu-", "x86_64-linux-gnu-",
)  # fmt: skip
"""How the names of programs begin that a bare machine does not have."""


@contextmanager
def bare_machine() -> Iterator[dict[str, str | None]]:
    """Yield the variables of a machine without Java, compiler, Maven, Docker, home and terminal.

    What was downloaded stays in its place: the network is not what is tried.
    """
    cache = os.environ.get("KBACKUP_CACHE_DIR") or str(Path.home() / ".cache" / "kbackup")
    with tempfile.TemporaryDirectory() as folder:
        home, programs = Path(folder, "home"), Path(folder, "bin")
        home.mkdir()
        programs.mkdir()
        for place in map(Path, os.environ["PATH"].split(os.pathsep)):
            for program in place.iterdir() if place.is_dir() else ():
                link = programs / program.name
                if not program.name.startswith(HIDDEN) and not link.is_symlink():
                    link.symlink_to(program)
        yield {
            "HOME": str(home), "PATH": str(programs), "TERM": "dumb", "JAVA_HOME": None,
            "KBACKUP_CACHE_DIR": cache, "CC": None,
        }  # fmt: skip


@nox.session
def bare(session: nox.Session) -> None:
    """The tests of the gate on a bare machine: what a release must hold on; takes as they do."""
    with bare_machine() as variables:
        words = (*SIDE_BY_SIDE, *session.posargs)
        session.run(PYTHON, "-m", "pytest", *words, env=variables, external=True)


@nox.session
def nightly(session: nox.Session) -> None:
    """What the gate has no time for, in at most 90 minutes, on a bare machine.

    That is what is marked ``nightly``, such as ten times as many mixtures and a fifth of 9,500 more
    numbers of the simulation, another one each night, and the C libraries under sanitizers.  Each
    runs even if the other one failed: a night is long, and the next one far.
    """
    failed = []
    night = str(datetime.now(UTC).toordinal())
    try:
        sanitized(session)
    except LeftOutError as why:
        session.warn(f"LEFT OUT: {why}")
    except CommandFailed:
        failed.append("sanitizers")
    with bare_machine() as variables:
        try:
            session.run(
                PYTHON, "-m", "pytest", *SIDE_BY_SIDE, "-m", "nightly", *session.posargs,
                env={**variables, "CRASH_KILLS": "8", "SIMULATED_NIGHT": night}, external=True,
            )  # fmt: skip
        except CommandFailed:
            failed.append("tests")
    if failed:
        session.error(f"failed: {', '.join(failed)}")


@nox.session
def stores(session: nox.Session) -> None:
    """The store's contract against the S3 server that ``KBACKUP_TEST_S3`` names.

    Its credentials are those of ``AWS_ACCESS_KEY_ID`` and ``AWS_SECRET_ACCESS_KEY``, its region
    that of ``AWS_REGION`` (default ``us-east-1``).  Buckets are made there, and left.
    """
    if not os.environ.get("KBACKUP_TEST_S3"):
        session.skip("KBACKUP_TEST_S3 names no server")
    session.run(
        PYTHON, "-m", "pytest", "-k", "s3", "tests/contract/test_stores.py",
        "tests/contract/test_ranges.py", *session.posargs, external=True,
    )  # fmt: skip


def _has_docker() -> bool:
    """Whether there is a Docker that answers."""
    docker = shutil.which("docker")
    if docker is None:
        return False
    asked = subprocess.run([docker, "info"], capture_output=True, check=False)  # noqa: S603  (found)
    return asked.returncode == 0


@nox.session
def image(session: nox.Session) -> None:
    """Build the container image; without Docker, run its steps on a bare machine."""
    if _has_docker():
        session.run("docker", "build", "-t", "kbackup", ".", external=True)
        session.run("docker", "run", "--rm", "--read-only", "kbackup", "--version", external=True)
        return
    session.warn("LEFT OUT: the image itself: there is no Docker; its steps are run instead")
    session.run(
        PYTHON, "-m", "pytest", "-m", "", "tests/integration/test_image.py", external=True
    )  # fmt: skip


ACROSS_BROKERS = (
    "tests/integration", "tests/contract/test_readers.py", "tests/contract/test_writers.py",
)  # fmt: skip
"""The tests that meet a broker."""


@nox.session
def brokers(session: nox.Session) -> None:
    """The integration tests against each release of Kafka; arguments are some of them."""
    failed = []
    for release in session.posargs or RELEASES:
        try:
            session.run(
                PYTHON, "-m", "pytest", *SIDE_BY_SIDE, *ACROSS_BROKERS,
                env={"KBACKUP_KAFKA": release}, external=True,
            )  # fmt: skip
        except CommandFailed:
            failed.append(release)
    if failed:
        session.error(f"tests failed with Kafka {' and '.join(failed)}")


@nox.session
def ci(session: nox.Session) -> None:
    """Everything the gate asks for; the tests last, for their closing line is read.

    On two quiet cores it takes at most 15 minutes: `BUDGET` has the parts.  What there is no time
    for is in `nightly`.
    """
    through(session, downloads, lint_beside_docs_and_installed, tests)


def lint_beside_docs_and_installed(session: nox.Session) -> None:
    """Take lint in a process of its own, and on the core that it leaves idle docs and installed.

    What lint says comes last, in one piece.
    """
    with ThreadPoolExecutor(1) as beside:
        words = (PYTHON, "-m", "nox", "-s", "lint")
        linted = beside.submit(session.run, *words, silent=True, external=True)
        try:
            docs(session)
            installed(session)
        finally:
            session.log(linted.result())


def downloads(session: nox.Session) -> None:
    """Begin to fetch what the tests start; wait for nothing."""
    session.run(PYTHON, "-m", "tests.support.downloads", external=True)


def through(session: nox.Session, *steps: Callable[[nox.Session], object]) -> None:
    """Take *steps* one after the other, and say how long each took and what was left out.

    A step that this machine cannot do ends nothing: `nox.Session.skip` would end the session as
    if all had been well.
    """
    took: list[str] = []
    for step in steps:
        if step is steps[-1]:
            for line in (BUDGET, *took):
                session.log(line)
        begun = time.monotonic()
        try:
            step(session)
        except LeftOutError as why:
            took.append(f"LEFT OUT: {why}")
            session.warn(took[-1])
        else:
            took.append(f"{step.__name__}: {time.monotonic() - begun:.0f} s")


@nox.session
def bench(session: nox.Session) -> None:
    """Measure speed and memory; arguments go to the benchmarks."""
    session.run(PYTHON, "-m", "benchmarks", *session.posargs, external=True)
