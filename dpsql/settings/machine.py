"""The memory that this process may have: public facts of the machine, never of data."""

from __future__ import annotations

import os
import re

GROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Files in which a container's kernel says what its control group may have, of both versions."""

UNKNOWN = 1 << 33
"""Memory that is assumed where nobody says, in bytes."""

REQUESTS = 2
"""One in this many bytes is for requests; as much is left for the rows of tables."""

UNITS = {"b": 1}
for _power, _prefix in enumerate("kmgt", start=1):
    UNITS |= {f"{_prefix}b": 1000**_power, f"{_prefix}ib": 1024**_power}


def memory() -> int:
    """The bytes that this process may have: the machine's, its control group's, or its limit's."""
    found = [_physical(), *map(_of_group, GROUPS), _of_process()]
    return min((each for each in found if each), default=UNKNOWN)


def request_memory() -> int:
    """The bytes that one request may need where nobody has said otherwise: rounded down."""
    share = memory() // REQUESTS
    rounded: int = 10**8 if share >= 10**9 else 10**6
    return max(share - share % rounded, 1)


def _physical() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def _of_group(path: str) -> int | None:
    try:
        with open(path, encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):  # no such group, or "max"
        return None


def _of_process() -> int | None:
    try:
        import resource  # which Windows has not

        most = resource.getrlimit(resource.RLIMIT_AS)[0]
    except (ImportError, OSError, ValueError):
        return None
    return most if most > 0 else None  # infinity is below zero


def read_bytes(text: str) -> int | None:
    """Read an amount of memory as DuckDB takes it, None for what is none.

    >>> read_bytes("8GB"), read_bytes("1.5 GiB"), read_bytes("8")
    (8000000000, 1610612736, None)
    """
    found = re.fullmatch(
        r"(\d{1,9})(?:\.(\d{1,3}))? ?([kmgt]i?b|b)", text, re.ASCII | re.IGNORECASE
    )
    if found is None:
        return None
    whole, part, unit = found.groups(default="0")
    thousandths = int(whole) * 1000 + int(part.ljust(3, "0"))
    return thousandths * UNITS[unit.lower()] // 1000 or None


def show_bytes(count: int) -> str:
    """Write an amount of memory so that it is read back.

    >>> show_bytes(8_000_000_000), show_bytes(1_610_612_736), show_bytes(12_345)
    ('8GB', '1.5GiB', '12345B')
    """
    found = [f"{count}B"]
    for unit, size in UNITS.items():
        thousandths, rest = divmod(count * 1000, size)
        if thousandths >= 1000 and not rest:
            digits = f"{thousandths // 1000}.{thousandths % 1000:03}".rstrip("0").rstrip(".")
            found.append(digits + unit.upper().replace("I", "i"))
    return min(found, key=len)
