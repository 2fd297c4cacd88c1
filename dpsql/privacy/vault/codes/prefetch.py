"""Batches of rows that another thread reads while those before are worked on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextvars import copy_context
from queue import Empty, SimpleQueue
from threading import Event, Semaphore, Thread
from typing import TYPE_CHECKING, TypeVar

from dpsql.interrupts import AGAIN, check, ended_by

if TYPE_CHECKING:
    from concurrent.futures import Future

Each = TypeVar("Each")

AHEAD = 3
"""Batches that are read ahead: with one, whoever is sooner waits for the other at each of them."""


def read_ahead(batches: Iterator[Each], stop: Callable[[], None], alone: int = 0) -> Iterator[Each]:
    """Yield all batches; while one is worked on, another thread reads the next ones.

    The first ``alone`` of them are read as they are asked for. That thread is waited for in the
    end, and ``stop`` called before, should it still be reading, or by whoever asks for an end.
    Raises: what ``batches`` raises, after those before; KeyboardInterrupt where it was asked for.
    Guarantee: the batches and their order are those of ``batches``, so that which rows count does
    not depend on time or threads.
    """
    for _ in range(alone):
        batch = next(batches, None)
        if batch is None:
            return
        yield batch
    from concurrent.futures import ThreadPoolExecutor  # 3 ms, and a short table needs none

    with ThreadPoolExecutor(1) as pool, ended_by(stop):
        begun = deque(pool.submit(next, batches, None) for _ in range(AHEAD))
        try:
            while (batch := _await(begun.popleft())) is not None:
                begun.append(pool.submit(next, batches, None))
                yield batch
        finally:
            for each in begun:
                each.cancel()
            if not all(each.done() for each in begun):
                stop()


def read_in_thread(batches: Iterator[Each]) -> Iterator[Each]:
    """Yield all batches of an engine that cannot be told to end: another thread reads them.

    Whoever is asked to end leaves that thread, which ends once the engine hands a batch over.
    Raises: what ``batches`` raises, after those before; KeyboardInterrupt where it was asked for.
    """
    found: SimpleQueue[tuple[Each | None, BaseException | None]] = SimpleQueue()
    wanted, is_left = Semaphore(AHEAD), Event()

    def read() -> None:
        end: BaseException | None = None
        try:
            while wanted.acquire() and not is_left.is_set():
                found.put((next(batches), None))
        except StopIteration:
            pass
        except BaseException as error:
            end = error
        finally:
            if hasattr(batches, "close"):
                batches.close()
            found.put((None, end))

    Thread(target=copy_context().run, args=(read,), daemon=True).start()
    try:
        while True:
            try:
                batch, error = found.get(timeout=AGAIN)
            except Empty:
                check()
                continue
            if error is not None:
                raise error
            if batch is None:
                return
            yield batch
            wanted.release()
    finally:
        is_left.set()
        wanted.release()


def _await(batch: Future[Each | None]) -> Each | None:
    try:
        return batch.result()
    except BaseException:
        check()  # who ended the read wanted that
        raise
