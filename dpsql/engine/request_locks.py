"""Turns: who asks what another process is measuring waits, and takes what that has released."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from dpsql.errors import LedgerError
from dpsql.files import FAILING, exclusive, file_trouble

_mine: set[tuple[int, int, Path]] = set()
"""Turns held by threads of this process: one that asks again, in a callback, must not wait."""


@contextmanager
def lock_request(store: Path, name: str) -> Iterator[None]:
    """Be the only one, process or thread, that works out what is stored under a name.

    The kernel gives a turn up when its process dies, and a forked child does not have it. Other
    names are not held up. The lock file is beside ``store``, and goes with the turn.
    Raises: LedgerError (E_LEDGER_IO) where nothing could be stored, before anything is charged.
    """
    path = store.with_name(f"{store.name}-{hashlib.sha256(name.encode()).hexdigest()[:24]}.lock")
    me = (os.getpid(), threading.get_ident(), path)
    if me in _mine:
        yield
        return
    while True:
        with ExitStack() as held:
            try:
                fd = held.enter_context(exclusive(path))
                is_current = _is_at(fd, path)
            except OSError as error:
                trouble = file_trouble(error) or FAILING
                raise LedgerError(
                    "E_LEDGER_IO",
                    f"nothing can be stored beside {store.name}: {trouble.what}; nothing was"
                    " charged",
                    hint=trouble.hint,
                ) from None
            if is_current:
                held.callback(_remove, path)
                _mine.add(me)
                held.callback(_mine.discard, me)
                yield
                return


def _is_at(fd: int, path: Path) -> bool:
    """True if a lock file is still in its place: who had it before has removed it."""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


def _remove(path: Path) -> None:
    with suppress(OSError):  # an open file stays on Windows, where the next turn takes it over
        path.unlink()
