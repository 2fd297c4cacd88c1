"""Which test files ``make test-fast`` leaves out, and what every file costs.

The rule: a file whose tests take more than LIMIT seconds of CPU together, those left out that are
marked slow themselves, is named in ``tests/slow.txt``. ``COSTS=1 make test`` prints who is on the
wrong side of it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parents[1]
LIMIT = 1.5
"""Seconds of CPU: all files below it take about 80 together."""


def slow_files() -> frozenset[Path]:
    """The files that are slow as a whole. Raises: UsageError where one is not there."""
    lines = (TESTS / "slow.txt").read_text(encoding="utf-8").splitlines()
    found = [TESTS / line for line in lines if line and not line.startswith("#")]
    missing = [str(path) for path in found if not path.is_file()]
    if missing:
        raise pytest.UsageError(f"tests/slow.txt names what is not there: {', '.join(missing)}")
    return frozenset(found)


class Costs:
    """Seconds of CPU of every file, children included that have ended, from all workers."""

    def __init__(self) -> None:
        self.start = 0.0
        self.quick: Counter[str] = Counter()
        self.slow: Counter[str] = Counter()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self.start = seconds()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.when == "teardown":
            is_slow = item.get_closest_marker("slow") is not None
            report.user_properties.append(("cpu", (seconds() - self.start, is_slow)))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add a test that has ended, here or in a worker."""
        properties: list[tuple[str, Any]] = report.user_properties
        for cost, is_slow in (found for name, found in properties if name == "cpu"):
            (self.slow if is_slow else self.quick)[report.nodeid.split("::")[0]] += cost

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print who is on the wrong side of the rule, and what all files cost."""
        write, listed = terminalreporter.write_line, {str(path) for path in slow_files()}
        total = sum(self.quick.values()) + sum(self.slow.values())
        write(f"{total:.0f} s of CPU, of which {sum(self.quick.values()):.0f} in make test-fast")
        for file, cost in (self.quick + self.slow).most_common():
            is_listed = str(TESTS.parent / file) in listed
            if not is_listed and self.quick[file] > LIMIT:
                write(f"{self.quick[file]:6.1f} s: name it in tests/slow.txt: {file}")
            elif is_listed and cost < LIMIT / 2:
                write(f"{cost:6.1f} s: no longer for tests/slow.txt: {file}")
            elif "-v" in os.environ["COSTS"]:
                write(f"{cost:6.1f} s: {file}")


def seconds() -> float:
    """The CPU that this process and its children that have ended have taken."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
