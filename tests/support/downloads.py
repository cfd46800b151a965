"""What the tests start, fetched on a fresh machine before a test has to wait for it.

As a program it leaves the work to a process of its own, and ends.  What fails is not said here: the
test that needs it tries again, and says why.
"""

import subprocess
import sys
from contextlib import suppress

from kbackup.errors import KbackupError
from kbackup.inspect.host import keep_classes
from kbackup.local.downloads import chosen, fetch_kafka
from kbackup.local.java import find_java
from tests.support.apicurio import fetch_registry


def fetch() -> None:
    """Fetch Kafka's jars and the registry, and make the archive of classes that Spark loads."""
    java = find_java()
    for get in (lambda: fetch_kafka(java, chosen()), lambda: fetch_registry(java)):
        with suppress(KbackupError):
            get()
    with suppress(KbackupError):
        keep_classes(java)


if __name__ == "__main__":
    if sys.argv[1:] == ["here"]:
        fetch()
    else:
        subprocess.Popen(
            [sys.executable, "-m", "tests.support.downloads", "here"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
