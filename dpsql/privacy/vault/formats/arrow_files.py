"""Files of Arrow, which are those of Feather too, and files of ORC: read by pyarrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from dpsql.catalog.delimited import Delimited
from dpsql.privacy.vault.data_engine import Unreadable
from dpsql.privacy.vault.files.arrow_rows import ROWS, ArrowRows
from dpsql.records import dataclass

ORC = (
    "it is no ORC file, or one that was cut off",
    "write it again, whole, not encrypted",
)
ARROW = (
    "it is neither a file nor a stream of Arrow, or it was cut off",
    "write it again, whole; of Feather the second version is read",
)


def open_file(path: str, named: str, written: Delimited) -> ArrowRows:
    """Open a file of Arrow or ORC by the end of its name.

    Args: as those of :func:`dpsql.privacy.vault.files.arrow_rows.open_rows`.

    Raises: Unreadable, OSError.
    """
    is_orc = path.lower().endswith(".orc")
    problem, hint = ORC if is_orc else ARROW
    try:
        return _open_orc(path) if is_orc else _open_arrow(path)
    except (FileNotFoundError, PermissionError):
        raise
    except (pa.ArrowException, OSError):
        pass  # what it says is about bytes
    raise Unreadable(problem, hint)


@dataclass(frozen=True, slots=True)
class ArrowFile:
    """A file of Arrow, or a stream of one batch after another."""

    path: str
    schema: pa.Schema
    is_stream: bool

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """See :class:`dpsql.privacy.vault.files.arrow_rows.ArrowRows`."""
        places = sorted({self.schema.names.index(name) for name in names})
        options = pa.ipc.IpcReadOptions(included_fields=places, use_threads=False)
        with pa.OSFile(self.path) as file:
            for batch in _read(file, self.is_stream, options):
                batch.validate()
                for start in range(0, len(batch), ROWS):
                    yield batch.slice(start, ROWS).select(names)


def _read(file: Any, is_stream: bool, options: Any) -> Iterator[pa.RecordBatch]:
    if is_stream:
        yield from pa.ipc.open_stream(file, options=options)
        return
    reader = pa.ipc.open_file(file, options=options)
    for i in range(reader.num_record_batches):
        yield reader.get_batch(i)


def _open_arrow(path: str) -> ArrowFile:
    with pa.OSFile(path) as file:
        is_stream = file.read(6) != b"ARROW1"
        file.seek(0)
        opened = pa.ipc.open_stream if is_stream else pa.ipc.open_file
        return ArrowFile(path, opened(file).schema, is_stream)


@dataclass(frozen=True, slots=True)
class OrcFile:
    """A file of ORC."""

    path: str
    schema: pa.Schema

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """See :class:`dpsql.privacy.vault.files.arrow_rows.ArrowRows`."""
        file = _orc(self.path)
        for stripe in range(file.nstripes):
            read = file.read_stripe(stripe, columns=[*names])
            for start in range(0, len(read), ROWS):
                yield read.slice(start, ROWS).select(names)


def _open_orc(path: str) -> OrcFile:
    return OrcFile(path, _orc(path).schema)


def _orc(path: str) -> Any:
    from pyarrow import orc  # few files are

    return orc.ORCFile(path)
