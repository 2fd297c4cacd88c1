"""Iceberg tables in folders: which Parquet files are a snapshot of one, as its metadata say.

Metadata are read, no row is. Names in them begin with the place where the table was written: what
follows it is looked for below the folder that is declared, and nothing is read that lies elsewhere.
A snapshot with delete files is refused: its rows are not those of its files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, cast

from dpsql.privacy.vault.data_engine import NESTED, unavailable
from dpsql.privacy.vault.files.table_folders import LATER, TableFolder, VersionFiles
from dpsql.records import dataclass

LOG = "metadata"
"""The folder within that of a table which holds what is said of it."""
WRITTEN = re.compile(rf"{LOG}/v?(\d+)(?:-[^/]*)?(?:\.gz)?\.metadata\.json(?:\.gz)?")
"""Names of files of metadata; the number grows with each change of the table."""
LOOKED = 16
"""Files of metadata, from the newest one on, in which a snapshot is looked for."""
SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:(?://)?")
FAMILIES = {
    **dict.fromkeys(("int", "long"), "integer"),
    **dict.fromkeys(("float", "double"), "float"),
    **dict.fromkeys(("timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns"), "timestamp"),
    **{each: each for each in ("date", "time", "boolean", "decimal")},
}
"""Families of columns by the types of a schema; others are texts."""
COMPACT = "rewrite its files (in Spark, CALL system.rewrite_data_files), and state that snapshot"


@dataclass(frozen=True, slots=True)
class _File:
    """A file as pyiceberg reads one; its own classes for that take a second to be imported."""

    location: str

    def open(self, seekable: bool = True) -> BinaryIO:
        return Path(self.location).open("rb")


@dataclass(frozen=True, slots=True)
class _Metadata:
    """One file of metadata, and the files that it names, for pyiceberg to read."""

    folder: TableFolder
    said: Any

    def within(self, address: str) -> str | None:
        """Return the name of a file within the folder of the table; None for one outside."""
        root = SCHEME.sub("", self.said.location, count=1).rstrip("/")
        path = SCHEME.sub("", address, count=1)
        name = path.removeprefix(f"{root}/")
        is_inside = path.startswith(f"{root}/") and not {"", ".", ".."} & {*name.split("/")}
        return name if is_inside else None

    def new_input(self, address: str) -> _File:
        """Open a file, as a FileIO of pyiceberg does. Raises: ValueError for one outside."""
        name = self.within(address)
        if name is None:
            raise ValueError("a file outside the folder of its table")
        return _File(self.folder.path(name))


def list_iceberg(folder: TableFolder, number: str, table: str) -> VersionFiles:
    """Return the files of a snapshot. Raises: DataUnavailable (E_DATA), naming table and folder."""

    def refuse(problem: str, hint: str = "check `version` in the catalog") -> NoReturn:
        unavailable(table, folder.declared, problem, hint)

    known = (each for each in _metadata(folder, table) if each.said.snapshot_by_id(int(number)))
    found = next(known, None)
    if found is None:
        refuse(f"it has no snapshot {number}")
    snapshot = found.said.snapshot_by_id(int(number))
    try:
        entries, has_deletes = _entries(found, snapshot.manifest_list)
    except Exception:  # what it says may hold values, which are in manifests as bounds
        entries, has_deletes = None, False
    if entries is None:
        refuse(f"what snapshot {number} consists of cannot be read", LATER)
    if has_deletes:
        refuse(f"snapshot {number} has delete files: rows of its files do not count", COMPACT)
    if {each.file_format.value for each in entries} - {"PARQUET"}:
        refuse("some of its files are not Parquet", "write its rows to a table of Parquet files")
    if not entries:
        refuse(f"snapshot {number} has no file, and none says what it holds")
    files = {name: each for each in entries if (name := found.within(each.file_path)) is not None}
    if len(files) < len(entries):
        refuse("its files lie outside its folder", "copy the table as a whole")
    return _listing(found.said, snapshot.schema_id, files)


def newest_snapshot(folder: TableFolder, table: str) -> int:
    """Return the number of the last snapshot, for a draft. Raises: DataUnavailable (E_DATA)."""
    found = next(_metadata(folder, table)).said.current_snapshot_id
    if found is None:
        unavailable(table, folder.declared, "it has no snapshot", "write rows to it first")
    return int(found)


def _metadata(folder: TableFolder, table: str) -> Iterator[_Metadata]:
    """Yield the files of metadata, the newest first; there is one. Raises: DataUnavailable."""
    if find_spec("pyiceberg") is None:  # asks without importing it
        problem = "Iceberg tables are read by the package pyiceberg, which is missing"
        unavailable(table, folder.declared, problem, "pip install 'dpsql[iceberg]'")
    written = [
        (int(found[1]), each) for each in folder.names() if (found := WRITTEN.fullmatch(each))
    ]
    if not written:
        hint = f"a folder that holds {LOG}/...metadata.json"
        unavailable(table, folder.declared, "no Iceberg table is there", hint)
    from pyiceberg.serializers import FromInputFile  # takes half a second

    for _, name in sorted(written, reverse=True)[:LOOKED]:
        try:
            said = FromInputFile.table_metadata(cast(Any, _File(folder.path(name))))
        except Exception:
            said = None  # what is said of a fault may hold values
        if said is None:
            problem = "its metadata cannot be read"
            unavailable(table, folder.declared, problem, "copy the table as a whole")
        yield _Metadata(folder, said)


def _entries(found: _Metadata, address: str) -> tuple[list[Any], bool]:
    """Return the files of a list of manifests, and whether one of these is of deletes."""
    from pyiceberg.manifest import ManifestContent, read_manifest_list

    manifests, files = (
        list(read_manifest_list(cast(Any, found.new_input(address)))),
        cast(Any, found),
    )
    data = [each for each in manifests if each.content == ManifestContent.DATA]
    entries = [entry.data_file for each in data for entry in each.fetch_manifest_entry(files)]
    return entries, len(data) < len(manifests)


def _listing(said: Any, schema_id: int | None, files: Mapping[str, Any]) -> VersionFiles:
    """Return the files of a snapshot, with what their partitions tell of columns."""
    schema = said.schema() if schema_id is None else said.schema_by_id(schema_id)
    fields = {each.field_id: each for each in schema.fields}
    mapping = said.name_mapping()
    return VersionFiles(
        names=tuple(files),
        families={each.name: _family(each.field_type) for each in schema.fields},
        told=tuple(_told(said.specs()[each.spec_id], each, fields) for each in files.values()),
        ids={each.name: each.field_id for each in schema.fields},
        unnumbered={name: each.field_id for each in mapping or () for name in each.names},
        filled=frozenset(c.name for c in schema.fields if c.initial_default is not None),
    )


def _family(kind: Any) -> str:
    return FAMILIES.get(str(kind).partition("(")[0], "text") if kind.is_primitive else NESTED


def _told(spec: Any, file: Any, fields: Mapping[int, Any]) -> dict[str, str | None]:
    """Return the columns of which all rows of a file have one value, by their names."""
    from pyiceberg.transforms import IdentityTransform

    whole: Any = IdentityTransform()
    return {
        known.name: None if value is None else whole.to_human_string(known.field_type, value)
        for i, each in enumerate(spec.fields)
        if isinstance(each.transform, IdentityTransform)
        and (known := fields.get(each.source_id)) is not None
        for value in [file.partition[i]]
    }
