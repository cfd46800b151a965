"""What Spark and its JVM print when they fail, read for the sentence that matters."""

import pytest

from kbackup.spark.java import exit_sentence, not_started, reason, task_failed

INCUBATOR = "WARNING: Using incubator modules: jdk.incubator.vector\n"
KILLED = "Java was ended by signal 9: the system may be out of memory"


def test_the_reason_of_a_failed_task_is_its_python_error() -> None:
    """A failed task is reported by its Python exception, without stack traces."""
    text = """org.apache.spark.SparkException: Job aborted due to stage failure
    at org.apache.spark.Foo.bar(Foo.scala:1)
Traceback (most recent call last):
  File "worker.py", line 1, in main
ValueError: the thing that broke
    at org.apache.spark.api.python.BasePythonRunner"""

    assert "ValueError: the thing that broke" == reason(text)


@pytest.mark.parametrize(
    ("printed", "said"),
    [
        pytest.param("", KILLED, id="nothing"),
        pytest.param(INCUBATOR, KILLED, id="a warning"),
        pytest.param(
            "[0.017s][error  ][aot] Loading static archive failed.\n", KILLED, id="of the archive"
        ),
        pytest.param(
            f"{INCUBATOR}Error occurred during initialization of VM\nToo small maximum heap\n",
            "Error occurred during initialization of VM: Too small maximum heap",
            id="a heading and its reason",
        ),
        pytest.param(
            f'{INCUBATOR}Exception in thread "main" java.lang.IllegalStateException: no\n\tat a.b',
            'Exception in thread "main" java.lang.IllegalStateException: no',
            id="an exception",
        ),
        pytest.param(
            "Picked up JAVA_TOOL_OPTIONS: -Xmx1m\nUnrecognized option: --foo\n",
            "Unrecognized option: --foo",
            id="a wrong option",
        ),
    ],
)
def test_a_jvm_that_dies_at_its_start_says_why(printed: str, said: str) -> None:
    """A JVM that dies at startup is reported by what it died of, not by its usual lines."""
    error = not_started(exit_sentence(-9), printed)

    assert (9, said) == (error.exit_code, error.why)


def test_an_exit_code_is_better_than_nothing() -> None:
    """A JVM that dies silently is reported by its exit code."""
    assert "Java ended with exit code 3" == exit_sentence(3)


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        pytest.param("MemoryError", "", id="of Python"),
        pytest.param(
            "pyarrow.lib.ArrowMemoryError: malloc of size 128 failed",
            ": malloc of size 128 failed",
            id="of Arrow",
        ),
    ],
)
def test_too_little_memory_is_no_fault_of_sparks(raised: str, said: str) -> None:
    """A task without memory is exit 1 and says what to do; the JVM's own heap is Spark's."""
    error = task_failed(f"org.apache.spark.SparkException: x\n  File, line 1\n{raised}\n\tat x")
    heap = task_failed("org.apache.spark.SparkException: x\njava.lang.OutOfMemoryError: heap")

    assert (1, "no_memory", 9) == (error.exit_code, error.code, heap.exit_code)
    assert f"this machine, or a limit of the process, has too little{said}" == error.why
    assert "--master 'local[1,4]'" in error.do


FULL = "java.io.IOException: No space left on device\n\tat java.base/sun.nio.ch.write0"


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(not_started("Java ended with exit code 1", FULL), id="at the start"),
        pytest.param(not_started("[Errno 28] No space left on device: '/tmp/x'", ""), id="before"),
        pytest.param(task_failed(f"org.apache.spark.SparkException: x\n{FULL}"), id="in a task"),
    ],
)
def test_a_full_disk_is_no_fault_of_sparks(error: Exception) -> None:
    """TMPDIR without room is exit 1 and says so, whoever runs into it first."""
    assert (1, "no space in TMPDIR: about ") == (error.exit_code, str(error)[:26])  # type: ignore[attr-defined]
