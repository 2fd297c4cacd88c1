"""Processes and threads that ask one catalog at the same moment; run by test_contend.

usage: contend.py CATALOG PROCESSES THREADS EPSILON SQL   (`{}` in SQL becomes the asker's number)

Prints one line of JSON per asker: the outcome, and the rows if there were any.
"""

from __future__ import annotations

import json
import os
import sys
import threading

import dpsql
from dpsql.dbapi.connection import connect


def ask(catalog: str, epsilon: float, sql: str, gate: threading.Barrier, out: int) -> None:
    """Connect, wait for the others of this process, ask once, and report."""
    with connect(catalog, epsilon=epsilon) as connection:
        connection.explain(sql)
        gate.wait()
        try:
            result = connection.execute(sql).result
            outcome = "free" if result.cost and result.cost.free else "paid"
            report = {"outcome": outcome, "rows": result.rows}
        except dpsql.BudgetExceeded as error:
            report = {"outcome": "refused", "remaining": str(error.remaining)}
        except dpsql.Error as error:
            report = {"outcome": error.code}
    os.write(out, (json.dumps(report) + "\n").encode())


def work(catalog: str, first: int, threads: int, epsilon: float, sql: str, start: int) -> None:
    """Run the threads of one process; they ask when the parent closes its end of ``start``."""

    def wait() -> None:
        os.read(start, 1)

    gate = threading.Barrier(threads, action=wait)
    askers = [
        threading.Thread(target=ask, args=(catalog, epsilon, sql.format(first + i), gate, 1))
        for i in range(threads)
    ]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()


def contend(catalog: str, processes: int, threads: int, epsilon: float, sql: str) -> int:
    """Fork the processes, let them all go at once, and return how many failed."""
    start, starter = os.pipe()
    children = []
    for place in range(processes):
        child = os.fork()
        if not child:
            os.close(starter)
            status = 1
            try:
                work(catalog, place * threads, threads, epsilon, sql, start)
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    os.close(start)
    os.close(starter)
    return sum(os.waitpid(child, 0)[1] != 0 for child in children)


if __name__ == "__main__":
    catalog, processes, threads, epsilon, sql = sys.argv[1:]
    sys.exit(contend(catalog, int(processes), int(threads), float(epsilon), sql))
