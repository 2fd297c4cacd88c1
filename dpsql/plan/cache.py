"""Planned strategies, remembered in the process and on disk by what was asked.

Strategies are functions of public facts only, so a file in the cache holds nothing private. What
is read back is checked in full; anything else is ignored and planned again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import time
from collections import OrderedDict
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from dpsql.plan.quantise import Integers
from dpsql.plan.select import select
from dpsql.plan.strategy import Block, Noise, Strategy
from dpsql.plan.workload import Workload

SCHEMA = 1
"""Part of every key; a change of the templates or of the file layout raises it."""

WORTH_SECONDS = 0.05
"""Strategies that were planned faster than this are not written to disk."""

FILE_LIMIT = 1 << 28
"""Largest file in bytes that is read back."""

REMEMBERED = 64
"""Strategies kept in the process."""

_memory: OrderedDict[str, Strategy] = OrderedDict()


def cached_select(
    workload: Workload,
    noise: Noise = "laplace",
    mechanism: str = "auto",
    effort: float = 1.0,
) -> Strategy:
    """Return ``select`` of the same arguments, instantly if it was planned before.

    The environment variable DPSQL_CACHE names the directory; "off" keeps everything in memory.
    """
    key = cache_key(workload, noise, mechanism, effort)
    if key in _memory:
        _memory.move_to_end(key)
        return _memory[key]
    directory = cache_directory()
    strategy = None if directory is None else read(directory / f"{key}.npz", workload, noise)
    if strategy is None:
        start = time.perf_counter()
        strategy = select(workload, noise, mechanism, effort)
        if directory is not None and time.perf_counter() - start > WORTH_SECONDS:
            write(directory / f"{key}.npz", strategy)
    _memory[key] = strategy
    while len(_memory) > REMEMBERED:
        _memory.popitem(last=False)
    return strategy


def cache_key(workload: Workload, noise: Noise, mechanism: str, effort: float) -> str:
    """Return the digest under which a strategy is remembered."""
    text = repr((SCHEMA, workload.fingerprint(), noise, mechanism, float(effort)))
    return hashlib.sha256(text.encode()).hexdigest()


def cache_directory() -> Path | None:
    """Return where strategies are kept, None for nowhere."""
    chosen = os.environ.get("DPSQL_CACHE")
    if chosen is not None:
        return None if chosen in ("", "off") else Path(chosen)
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(home) / "dpsql" / "strategies"


def write(path: Path, strategy: Strategy) -> None:
    """Write a strategy under a temporary name and rename it; failures are of no consequence."""
    names = list(strategy.domain)
    arrays: dict[str, Any] = {}
    for kind, source in (("full", strategy.full), ("residual", strategy.residual)):
        for name, rows in source.items():
            if rows is not None:
                arrays[f"{kind}{names.index(name)}"] = rows
    facts = {
        "domain": list(strategy.domain.items()),
        "full": list(strategy.full),
        "residual": list(strategy.residual),
        "noise": strategy.noise,
        "method": strategy.method,
        "blocks": [[list(b.attributes), sorted(b.residual), str(b.share)] for b in strategy.blocks],
        "fingerprint": strategy.fingerprint(),
    }
    text = np.frombuffer(json.dumps(facts).encode(), dtype=np.uint8)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                np.savez_compressed(file, facts=text, **arrays)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise


def read(path: Path, workload: Workload, noise: Noise) -> Strategy | None:
    """Return the strategy in a file, None if it is absent, damaged or not for this workload."""
    try:
        if path.stat().st_size > FILE_LIMIT:
            return None
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            facts = json.loads(stored["facts"].tobytes())
            arrays = {key: stored[key] for key in stored.files if key != "facts"}
        strategy = _assemble(facts, arrays)
    except Exception:
        # A cache may hold anything at all: whatever cannot be read is planned again.
        return None
    if strategy.noise != noise or list(strategy.domain.items()) != list(workload.domain.items()):
        return None
    return strategy if strategy.fingerprint() == facts["fingerprint"] else None


def _assemble(facts: dict[str, object], arrays: dict[str, Integers]) -> Strategy:
    domain = {str(name): int(size) for name, size in _pairs(facts["domain"])}
    names = list(domain)
    sources = [
        {name: arrays.get(f"{kind}{names.index(name)}") for name in _strings(facts[kind])}
        for kind in ("full", "residual")
    ]
    blocks = []
    for item in _list(facts["blocks"]):
        attributes, residual, share = _list(item)
        part = Fraction(str(share))
        blocks.append(Block(tuple(_strings(attributes)), frozenset(_strings(residual)), part))
    noise: Noise = "gaussian" if facts["noise"] == "gaussian" else "laplace"
    full, residual_rows = sources
    return Strategy(domain, full, residual_rows, tuple(blocks), noise, str(facts["method"]))


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is not a list")
    return value


def _strings(value: object) -> list[str]:
    return [str(item) for item in _list(value)]


def _pairs(value: object) -> list[tuple[str, int]]:
    pairs = []
    for item in _list(value):
        name, size = _list(item)
        pairs.append((str(name), int(str(size))))
    return pairs
