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
import threading
import time
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsql.algebra.operator import Integers
from dpsql.files import load_arrays, make_folder
from dpsql.forks import fresh
from dpsql.search.select import TEMPLATES, Selection, choose
from dpsql.search.work_limit import ROOM, left_in_all, room, spend
from dpsql.settings.table import FAMILIES
from dpsql.strategy.noise_law import LAPLACE, Noise
from dpsql.strategy.registry import decode_strategy
from dpsql.workload.workload import Workload

if TYPE_CHECKING:
    from dpsql.search.neighbourhood import Neighbourhood

SCHEMA = 41
"""Part of every key; a change of the templates or of the file layout raises it."""

WORTH_SECONDS = 0.05
"""Strategies that were planned faster than this are not written to disk: they are planned anew."""

FILE_LIMIT = 1 << 28
"""Largest file in bytes that is read back: a cache may hold anything at all."""

REMEMBERED = 64
"""Strategies kept in the process."""

_memory: OrderedDict[str, Selection] = OrderedDict()
# ``fresh``: a child that was forked while another thread held it would wait for ever.
_remembering = fresh(threading.Lock())


def cached_choice(
    workload: Workload,
    noise: Noise = LAPLACE.name,
    mechanism: str = "auto",
    effort: float = 1.0,
    near: Neighbourhood | None = None,
) -> Selection:
    """Return ``choose`` of the same arguments, instantly if it was planned before.

    The environment variable DPSQL_CACHE names the directory; "off" keeps everything in memory.

    Args: as of ``choose``, and
        near: a strategy of few queries, near which another is looked for.
    """
    key = cache_key(workload, noise, mechanism, effort, near)
    found = _recall(key)
    directory = cache_directory()
    if found is None and directory is not None:
        found = read(directory / f"{key}.npz", workload, noise)
    if found is not None and found.work < left_in_all():
        # as if it were planned now: what follows depends on it
        spend(found.work, found.is_cut, found.is_tight)
        _remember(key, found)
        return found
    start = time.perf_counter()
    if near is None:
        found = choose(workload, noise, mechanism, effort)
    else:
        from dpsql.search.neighbourhood import choose_near  # searches that most requests do without

        found = choose_near(workload, near, mechanism, effort)
    if left_in_all() <= 0:  # it may have ended for what was planned before it
        return found
    if directory is not None and time.perf_counter() - start > WORTH_SECONDS:
        write(directory / f"{key}.npz", found)
    _remember(key, found)
    return found


def _recall(key: str) -> Selection | None:
    with _remembering:
        if key in _memory:
            _memory.move_to_end(key)
        return _memory.get(key)


def _remember(key: str, found: Selection) -> None:
    with _remembering:
        _memory[key] = found
        while len(_memory) > REMEMBERED:
            _memory.popitem(last=False)


def cache_key(
    workload: Workload,
    noise: Noise,
    mechanism: str,
    effort: float,
    near: Neighbourhood | None = None,
) -> str:
    """Return the digest under which a strategy is remembered.

    Args: as of ``cached_choice``.
    """
    more = sorted(TEMPLATES.keys() - set(FAMILIES))  # another family may be better, or be gone
    facts = (SCHEMA, workload.fingerprint(), noise, mechanism, float(effort))
    scarce = [("room", room())] if room() < ROOM else []
    known = [] if near is None else [("near", near.fingerprint())]
    text = repr((*facts, *scarce, *known, more) if more else (*facts, *scarce, *known))
    return hashlib.sha256(text.encode()).hexdigest()


def cache_directory() -> Path | None:
    """Return where strategies are kept, None for nowhere."""
    chosen = os.environ.get("DPSQL_CACHE")
    if chosen is not None:
        return None if chosen in ("", "off") else Path(chosen)
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(home) / "dpsql" / "strategies"


def write(path: Path, found: Selection) -> None:
    """Write a selection under a temporary name and rename it; failures are of no consequence."""
    arrays: dict[str, Any] = {}

    def keep(array: Integers) -> str:
        name = f"x{len(arrays)}"
        arrays[name] = array
        return name

    facts = {
        **found.strategy.encode(keep),
        "coarse": [each.encode(keep) for each in found.coarse],
        "lower": found.lower,
        "work": found.work,
        "is_cut": found.is_cut,
        "is_tight": found.is_tight,
        "fingerprint": fingerprint(found),
    }
    text = np.frombuffer(json.dumps(facts).encode(), dtype=np.uint8)
    with contextlib.suppress(OSError):
        make_folder(path.parent)
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                np.savez_compressed(file, facts=text, **arrays)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise


def read(path: Path, workload: Workload, noise: Noise) -> Selection | None:
    """Return the selection in a file, None if it is absent, damaged or not for this workload.

    Args:
        path: an .npz file of any content.
    """
    try:
        if path.stat().st_size > FILE_LIMIT:
            return None
        with path.open("rb") as file:
            arrays = load_arrays(file)
        facts = json.loads(arrays.pop("facts").tobytes())
        strategy, lower = decode_strategy(facts, arrays), float(facts["lower"])
        coarse = tuple(decode_strategy(each, arrays) for each in facts["coarse"])
        known, work = facts["fingerprint"], float(facts["work"])
        is_cut, is_tight = bool(facts["is_cut"]), bool(facts["is_tight"])
    except Exception:
        # A cache may hold anything at all: whatever cannot be read is planned again.
        return None
    found = Selection(strategy, lower, coarse, work, is_cut, is_tight)
    domain = list(workload.domain.items())
    fit = all(s.noise == noise and list(s.domain.items()) == domain for s in (strategy, *coarse))
    return found if fit and fingerprint(found) == known else None


def fingerprint(found: Selection) -> list[str]:
    """Return the digests of all strategies of a selection."""
    return [each.fingerprint() for each in (found.strategy, *found.coarse)]
