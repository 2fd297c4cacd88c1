"""Results of DuckDB as arrays of numpy, a few rows at a time, through Arrow's C interface.

The interface is three C structures. Reading numbers, flags and texts from them needs neither
pyarrow nor pandas, whose imports take longer than a first answer.
Source: Apache Arrow, "The Arrow C data interface", "The Arrow C stream interface" and "The Arrow
PyCapsule interface".
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Collection, Iterator
from ctypes import CFUNCTYPE, POINTER, byref, c_char_p, c_int, c_int64, c_void_p
from typing import Any

import numpy as np
import numpy.typing as npt

from dpsql.privacy.vault.codes.byte_texts import ByteTexts

Fetched = dict[str, Any]
"""Some rows of every column: arrays, or texts as bytes."""
DTYPES = {"l": np.int64, "i": np.int32, "C": np.uint8, "g": np.float64}
"""Types of numbers, by their names in a schema."""
FLAGS, TEXTS = "b", {"u": np.int32, "U": np.int64}
"""Names of flags and texts there; texts with the type of their ends."""
EMPTY = {**DTYPES, FLAGS: np.bool_}
"""The types of all but texts."""


class ArrowSchema(ctypes.Structure):
    """The name of a column and the type that it is stored as."""


class ArrowArray(ctypes.Structure):
    """The values of a column."""


class ArrowStream(ctypes.Structure):
    """A stream of a schema, and of one batch of columns after another."""


ArrowSchema._fields_ = [
    ("format", c_char_p),
    ("name", c_char_p),
    ("metadata", c_char_p),
    ("flags", c_int64),
    ("n_children", c_int64),
    ("children", POINTER(POINTER(ArrowSchema))),
    ("dictionary", POINTER(ArrowSchema)),
    ("release", CFUNCTYPE(None, POINTER(ArrowSchema))),
    ("private_data", c_void_p),
]
ArrowArray._fields_ = [
    ("length", c_int64),
    ("null_count", c_int64),
    ("offset", c_int64),
    ("n_buffers", c_int64),
    ("n_children", c_int64),
    ("buffers", POINTER(c_void_p)),
    ("children", POINTER(POINTER(ArrowArray))),
    ("dictionary", POINTER(ArrowArray)),
    ("release", CFUNCTYPE(None, POINTER(ArrowArray))),
    ("private_data", c_void_p),
]
ArrowStream._fields_ = [
    ("get_schema", CFUNCTYPE(c_int, POINTER(ArrowStream), POINTER(ArrowSchema))),
    ("get_next", CFUNCTYPE(c_int, POINTER(ArrowStream), POINTER(ArrowArray))),
    ("get_last_error", CFUNCTYPE(c_char_p, POINTER(ArrowStream))),
    ("release", CFUNCTYPE(None, POINTER(ArrowStream))),
    ("private_data", c_void_p),
]


def read_stream(capsule: object, rows: int, as_bytes: Collection[str] = ()) -> Iterator[Fetched]:
    """Yield copies of all rows of a stream, at most ``rows`` at a time; the last batch is empty.

    A missing double is NaN, another missing value zero, False or no text. Texts of the columns
    ``as_bytes`` are no objects.
    Raises: ValueError for columns of other types; OSError where the producer fails.
    """
    stream = _open(capsule)
    formats = _read_schema(stream)
    while True:
        batch = ArrowArray()
        _check(stream.get_next(byref(stream), byref(batch)))
        if not batch.release:
            break
        try:
            for start in range(0, batch.length, rows):
                stop = min(start + rows, batch.length)
                yield _read_batch(batch, formats, start, stop, as_bytes)
        finally:
            batch.release(byref(batch))
    yield {
        name: ByteTexts.of(()) if name in as_bytes else np.zeros(0, EMPTY.get(each, object))
        for name, each in formats.items()
    }


def _open(capsule: object) -> ArrowStream:
    """Return the stream in a capsule, which frees it in the end."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = c_void_p, [ctypes.py_object, c_char_p]
    return ArrowStream.from_address(pointer(capsule, b"arrow_array_stream"))


def _read_schema(stream: ArrowStream) -> dict[str, str]:
    """Return how each column is stored, by name."""
    schema = ArrowSchema()
    _check(stream.get_schema(byref(stream), byref(schema)))
    columns = [schema.children[i].contents for i in range(schema.n_children)]
    found = {each.name.decode(): each.format.decode() for each in columns}
    schema.release(byref(schema))
    if len(found) < len(columns) or not {*found.values()} <= {*DTYPES, FLAGS, *TEXTS}:
        raise ValueError("these columns are not read from a stream")
    return found


def _check(error: int) -> None:
    if error:
        raise OSError(error, "the stream has failed")


def _read_batch(
    batch: ArrowArray, formats: dict[str, str], start: int, stop: int, as_bytes: Collection[str]
) -> Fetched:
    first, rows = batch.offset + start, stop - start
    return {
        name: _read_column(batch.children[i].contents, each, first, rows, name in as_bytes)
        for i, (name, each) in enumerate(formats.items())
    }


def _read_column(column: ArrowArray, form: str, start: int, rows: int, as_bytes: bool) -> Any:
    """Copy some rows of a column, the buffers of which are: what is there, and the values."""
    start += column.offset
    missing = _missing(column.buffers[0], start, rows)
    if form in TEXTS:
        ends = _numbers(column.buffers[1], TEXTS[form], start, rows + 1)
        data = bytes(_bytes(column.buffers[2], int(ends[0]), int(ends[-1] - ends[0])))
        ends = ends.astype(np.int64) - ends[0]
        if as_bytes:
            sizes = np.where(missing, 0, np.diff(ends))
            return ByteTexts(np.frombuffer(data, np.uint8), ends[:-1], sizes)
        return _texts(ends, data, missing)
    values = (
        _bits(column.buffers[1], start, rows)
        if form == FLAGS
        else _numbers(column.buffers[1], DTYPES[form], start, rows)
    )
    values[missing] = np.nan if form == "g" else 0
    return values


def _numbers(address: Any, dtype: type, start: int, count: int) -> npt.NDArray[Any]:
    size = np.dtype(dtype).itemsize
    return np.frombuffer(_bytes(address, start * size, count * size), dtype).copy()


def _bits(address: Any, start: int, count: int) -> npt.NDArray[np.bool_]:
    first = start // 8
    packed = np.frombuffer(_bytes(address, first, (start + count + 7) // 8 - first), np.uint8)
    bits = np.unpackbits(packed, bitorder="little")[start - first * 8 :][:count]
    return bits.astype(np.bool_)


def _missing(address: Any, start: int, rows: int) -> npt.NDArray[np.bool_]:
    """Say what is not there, (rows,): looked at whether anything is missing or not."""
    return ~_bits(address, start, rows) if address else np.zeros(rows, dtype=np.bool_)


def _texts(
    ends: npt.NDArray[np.int64], data: bytes, missing: npt.NDArray[np.bool_]
) -> npt.NDArray[np.object_]:
    """Return texts, which lie one after another; bytes that are not UTF-8 stay apart.

    Each is read by itself, in the same way whether any of them is beyond ASCII or not.
    """
    pairs = itertools.pairwise(ends.tolist())
    texts = np.empty(len(ends) - 1, dtype=object)
    texts[:] = [data[a:b].decode(errors="surrogateescape") for a, b in pairs]
    texts[missing] = ""
    return texts


def _bytes(address: Any, start: int, count: int) -> Any:
    return (ctypes.c_char * count).from_address(address + start) if count else b""
