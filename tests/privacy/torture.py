"""Workers that debit one ledger while a parent kills them at random; run by test_torture.

usage: torture.py DIRECTORY SECONDS WORKERS SHORTEST LONGEST   (kill gaps in seconds)

Every worker debits a unit, appends the receipt to a file of its own, and settles. The parent
kills only children it has started itself, and prints what it counted as JSON.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from fractions import Fraction
from pathlib import Path

from dpsql.errors import BudgetExceeded
from dpsql.privacy.budget.accounting import Policy, laplace_cost
from dpsql.privacy.budget.ledger import Ledger


def open_ledger(directory: Path, units: int) -> Ledger:
    """Open the ledger under torture, creating it the first time."""
    policy = Policy(Fraction(units, 10**6), Fraction(0))
    return Ledger.open_or_create(directory / "ledger", directory / "anchors", policy, "torture")


def work(directory: Path, units: int, place: int) -> None:
    """Debit until the budget is gone, noting each receipt once it is in hand."""
    ledger = open_ledger(directory, units)
    cost = laplace_cost(ledger.policy, Fraction(1, 10**6))
    notes = os.open(directory / f"notes-{place}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    while True:
        began = time.monotonic()
        try:
            receipt = ledger.debit(cost, f"plan-{place}", "v")
        except BudgetExceeded:
            return
        taken = time.monotonic() - began
        os.write(notes, f"{receipt.seq} {receipt.head} {taken:.6f}\n".encode())
        ledger.settle(receipt, "released")


def start(directory: Path, units: int, place: int) -> int:
    """Fork one worker and return its process id."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        work(directory, units, place)
        status = 0
    finally:
        os._exit(status)


def torture(directory: Path, seconds: float, workers: int, gaps: tuple[float, float]) -> None:
    """Keep ``workers`` alive for ``seconds``, killing one of them after every gap."""
    units = int(os.environ.get("TORTURE_UNITS", "1000000"))
    living = [start(directory, units, place) for place in range(workers)]
    kills = crashes = finished = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end and finished < workers:
        time.sleep(random.uniform(*gaps))
        place = random.randrange(workers)
        if not living[place]:
            continue
        os.kill(living[place], signal.SIGKILL)
        _, status = os.waitpid(living[place], 0)
        if os.WIFSIGNALED(status):
            kills += 1
            living[place] = start(directory, units, place)
        else:
            crashes += os.WEXITSTATUS(status) != 0
            finished += 1
            living[place] = 0
    for child in living:
        if child:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    print(json.dumps({"kills": kills, "crashes": crashes, "finished": finished}))


if __name__ == "__main__":
    torture(
        Path(sys.argv[1]),
        float(sys.argv[2]),
        int(sys.argv[3]),
        (float(sys.argv[4]), float(sys.argv[5])),
    )
