"""The gate's command: what statements compile to, beside what is recorded of them.

``python -m tests.gate`` compares all of them, some minutes; ``write`` records them anew: answers
are asked for where the verdict is another one, and of all statements of the worlds that are named.
``respell`` lists anew which spellings are unequal, ``grid`` which forms do not work together,
``bind`` which statements the binder does not bind, ``levels`` which are another verdict by the
levels of their plans; ``collect`` asks the oracle's tests for theirs.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from tests.gate.collect import collect
from tests.gate.grid import write_holes
from tests.gate.record import FREE, RED, Change, counted, differences, read_record, write_record
from tests.gate.spellings import write_unequal
from tests.logical.levelled import write_unlike
from tests.logical.shadow import write_unbound


def main(arguments: list[str]) -> int:
    """Run a command; return 1 where something is worse than recorded."""
    parser = argparse.ArgumentParser(prog="python -m tests.gate", description=__doc__)
    parser.add_argument("command", nargs="?", default="compare", choices=COMMANDS)
    parser.add_argument("names", nargs="*", help="worlds, or folders of tests to collect from")
    given = parser.parse_args(arguments)
    return COMMANDS[given.command](given.names)


def _compare(names: list[str]) -> int:
    record = read_record()
    print(", ".join(f"{count:,} {name}" for name, count in counted(record.values()).items()))
    found: Counter[Change] = Counter()
    for each in differences(record, names=names):
        found[each.change] += 1
        if each.change not in FREE:
            print(each, flush=True)
    print(", ".join(f"{count} {change.value}" for change, count in found.items()) or "no change")
    return int(any(change in RED for change in found))


def _write(names: list[str]) -> int:
    print(", ".join(f"{count:,} {name}" for name, count in write_record(names).items()))
    return 0


def _respell(names: list[str]) -> int:
    print(", ".join(f"{count:,} {name}" for name, count in write_unequal().items()))
    return 0


def _grid(names: list[str]) -> int:
    print(", ".join(f"{count:,} {name}" for name, count in write_holes().items()))
    return 0


def _bind(names: list[str]) -> int:
    print("{:,} that DuckDB binds, {:,} of them not bound".format(*write_unbound()))
    return 0


def _levels(names: list[str]) -> int:
    print(", ".join(f"{count:,} {name}" for name, count in write_unlike().most_common()))
    return 0


def _collect(names: list[str]) -> int:
    return collect(names or ["tests/oracle"])


COMMANDS = {
    "compare": _compare,
    "write": _write,
    "respell": _respell,
    "grid": _grid,
    "bind": _bind,
    "levels": _levels,
    "collect": _collect,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
