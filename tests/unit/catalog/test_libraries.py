"""Which libraries looking at a backup loads: each of them costs megabytes for a whole run."""

import json
import subprocess
import sys

LOOK = """\
import json, sys
from kbackup import formats
from kbackup.catalog.ledger.rows import OBJECTS, Entry, table
from kbackup.formats import FormatOptions
assert formats.by_extension(".nobody-reads-this", FormatOptions()) is None
rows = table([Entry("object", 0, 0, 9, "key", records=10)] * 2, OBJECTS)
assert len(OBJECTS.merged(rows)) == 1
print(json.dumps(list(sys.modules)))
"""


def test_a_backup_is_planned_without_libraries_that_only_some_objects_need() -> None:
    """To ask formats what they read, and to merge the ledger, loads no library but Parquet's."""
    done = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, check=True)

    modules = set(json.loads(done.stdout))
    assert "pyarrow.parquet" in modules
    assert not modules & {"fastavro", "cramjam", "pyarrow.acero", "pyarrow.dataset", "numpy"}


def test_a_worker_loads_nothing_that_decides_what_is_read() -> None:
    """The driver has decided it: each worker of each run would load it in vain."""
    tasks = "kbackup.restore.task, kbackup.sink.task, kbackup.verify.task"
    code = f"import json, sys, {tasks}; print(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    decides = {"kbackup.catalog.coverage", "kbackup.catalog.covered", "kbackup.config.settings"}
    assert not decides.intersection(json.loads(done.stdout))
