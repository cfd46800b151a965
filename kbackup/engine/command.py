"""The command line of Spark's JVM on this machine.

``spark-submit`` is two shell scripts and a JVM of its own that only prints this command: 0.3 s, and
0.2 s more in the class that it then starts.  Where nothing is set that only those scripts know
about, the same command is made here; everywhere else they are asked.
"""

import os
import re
import shlex
import tempfile
import zipfile
from collections.abc import Mapping
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from kbackup.engine.archive import using
from kbackup.engine.settings import EngineSettings

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
    """Return the command that starts Spark's JVM, None where Spark's scripts have to make it.

    Args:
        settings: Their master is a local one, or None is returned.
        conf: All Spark properties of the run.
        archive: The class archive to use.
    """
    if settings.jvm is None or not settings.is_local:
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
        f"{settings.jvm.home}/bin/java",
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
