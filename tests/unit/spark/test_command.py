"""The command line of Spark's JVM."""

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pyspark
import pytest

from kbackup.local import find_java
from kbackup.spark.java import _GATEWAY, EngineSettings, direct_command, java_options

HOME = Path(pyspark.__file__).parent
CONF = {"spark.master": "local[2]", "spark.driver.memory": "512m"}


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> EngineSettings:
    """A local Spark on the Java of this machine, with nothing set for Spark's scripts."""
    for name in list(os.environ):
        if name.startswith(("SPARK_", "PYSPARK_", "HADOOP_", "YARN_")):
            monkeypatch.delenv(name)
    return EngineSettings(java=replace(find_java(), class_archive=None))


def test_the_command_is_the_one_that_sparks_launcher_makes(settings: EngineSettings) -> None:
    """It is the launcher's, but for the class that is run and what only MLlib and tables need."""
    assert settings.java is not None
    options = " ".join(f'"{option}"' for option in java_options(None))
    given = {**CONF, "spark.driver.extraJavaOptions": options}
    words = [f"--conf={name}={value}" for name, value in given.items()]
    scripts = "org.apache.spark.deploy.SparkSubmit"
    printed = subprocess.run(
        [str(settings.java.executable), "-cp", f"{HOME}/jars/*",
         "org.apache.spark.launcher.Main", scripts, *words, "pyspark-shell"],
        env={**os.environ, "SPARK_HOME": str(HOME), "SPARK_SCALA_VERSION": "2.13",
             "JAVA_HOME": str(settings.java.home)},
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    theirs = [word.strip() for word in printed.split("\0") if word.strip()]
    theirs = theirs[: theirs.index(scripts)]

    ours = direct_command(settings, CONF, None)

    assert ours is not None
    assert ours[-1] == _GATEWAY
    unneeded = ("--add-modules=", "-Dderby.")  # nobody here keeps tables
    assert [word for word in theirs if not word.startswith(unneeded)] == ours[:-1]


@pytest.mark.parametrize(
    "name", ["SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT"]
)
def test_sparks_scripts_are_asked_where_something_is_set_for_them(
    settings: EngineSettings, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """What an operator has set up for Spark holds for our runs too."""
    monkeypatch.setenv(name, "1")

    assert direct_command(settings, CONF, None) is None


@pytest.mark.parametrize(
    ("master", "more"),
    [
        pytest.param("spark://host:7077", {}, id="a cluster"),
        pytest.param("local-cluster[2,1,1024]", {}, id="a cluster on this machine"),
        pytest.param("local[2]", {"spark.jars.packages": "a:b:1"}, id="more jars"),
        pytest.param("local[2]", {"spark.driver.extraClassPath": "/x"}, id="another class path"),
    ],
)
def test_sparks_scripts_are_asked_for_what_only_they_do(
    settings: EngineSettings, master: str, more: dict[str, str]
) -> None:
    """Jars to fetch and class paths to extend are left to spark-submit."""
    given = EngineSettings(master, more, settings.java)

    assert direct_command(given, {**CONF, **more}, None) is None


def test_options_of_the_operator_come_last(settings: EngineSettings) -> None:
    """Java takes the last of two options that contradict each other."""
    given = EngineSettings(
        conf={"spark.driver.extraJavaOptions": '-Da="b c" -XX:+UseParallelGC'}, java=settings.java
    )

    command = direct_command(given, {**CONF, **given.conf}, None)

    assert command is not None
    assert command[-3:] == ["-Da=b c", "-XX:+UseParallelGC", _GATEWAY]
