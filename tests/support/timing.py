"""Where the time of a run of the tests went, folder by folder, beside what it may cost."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

import pytest

BUDGET: Final[Mapping[str, float]] = {
    "unit, docs": 3.0,
    "contract, conformance, property, fault": 3.0,
    "simulation": 1.5,
    "integration": 3.0,
}
"""Minutes that the folders of `tests` may take on two cores; CONTRIBUTING has the same table."""


def spent(durations: Mapping[str, float], workers: int) -> dict[str, float]:
    """Return the minutes that each part of the budget took.

    Args:
        durations: Seconds by the id of a test, of all its phases.
        workers: Processes that shared the tests.
    """
    minutes = dict.fromkeys(BUDGET, 0.0)
    for test, seconds in durations.items():
        folder = test.removeprefix("tests/").partition("/")[0]
        for part in BUDGET:
            if folder in part.split(", "):
                minutes[part] += seconds / 60 / workers
    return minutes


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print the parts that took a minute or more, if the slowest tests are asked for as well."""
    if not config.getoption("durations"):
        return
    durations: defaultdict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                durations[report.nodeid] += report.duration
    minutes = spent(durations, config.getoption("numprocesses", None) or 1)
    terminalreporter.section("minutes, and the budget on two quiet cores")
    for part, budget in BUDGET.items():
        terminalreporter.write_line(f"{part:40} {minutes[part]:5.1f} of {budget:3.1f}")
