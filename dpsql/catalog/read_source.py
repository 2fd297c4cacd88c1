"""Read where the rows of a table are: files, a source of an installed engine, a table of a server.

A server is named by engine and table. How it is reached is no part of the policy, and what must
stay secret is not in the catalog at all: it is in the environment, or in files of the driver.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from dpsql.catalog.catalog import SERVERS, engine_of, is_stored, kind_of
from dpsql.catalog.delimited import KEYS as KEYS_OF_TEXT
from dpsql.catalog.delimited import read_delimited
from dpsql.catalog.read_place import Place, show

KEYS: Mapping[str, tuple[str, ...]] = {
    "postgresql": ("dsn_env", "service", "view"),
    "spark": ("master", "path", "format", "view"),
}
"""Further keys of the source of a table, by the engine of a server."""
COMMON = ("engine", "table", "version", "refresh", "read")
REFRESH = ("hour", "day", "week", "month")
READ = ("stream", "push")
SPARK = ("engine", "master", "read")
"""Further keys of a version of a Delta table that Spark counts."""
TEXT = ("decimal", "thousands", "dates", "missing", "percent", "currency")
"""Further keys of files whose columns are text."""
OF_FILES: Mapping[str, tuple[str, ...]] = {
    "csv": KEYS_OF_TEXT,
    **dict.fromkeys(("parquet", "arrow", "orc"), ("partitions",)),
    "json": ("encoding", *TEXT, "header", "skip", "partitions"),
    "sheet": ("table", *TEXT, "header", "skip"),
    "sqlite": ("table", *TEXT),
    "duckdb": ("table", "view"),
    **dict.fromkeys(("spss", "stata", "sas"), ("encoding",)),
}
"""Further keys of files, by their kind."""
SECRET = re.compile(r"dsn|uri|url|password|passwd|secret|token|user|connection", re.I)
EXAMPLE = 'source = { engine = "postgresql", dsn_env = "CLINIC_DSN", table = "public.visits" }'

WRITTEN = 'source = { file = "data.csv", delimiter = ";", encoding = "cp1252" }'
STORED = 'source = { file = "shop.duckdb", table = "sales.orders" }'
IN_STORES = ("version", "refresh")
"""Further keys of files in stores."""
CLOUDS = {
    re.compile(r"(^|\.)s3[.-].*amazonaws\.com$|(^|\.)s3\.amazonaws\.com$"): "s3://bucket/key",
    re.compile(r"(^|\.)storage\.googleapis\.com$|^storage\.cloud\.google"): "gs://bucket/key",
    re.compile(r"\.(blob|dfs)\.core\."): "az://container/key",
}
"""Hosts whose objects have another address, by which they are charged."""
OBJECT = 'source = "s3://bucket/folder/*.parquet"'
LOGGED = {
    "delta": ("a Delta table", 'source = { delta = "warehouse/visits", version = 3 }'),
    "iceberg": ("an Iceberg table", 'source = { iceberg = "warehouse/visits", version = 81240 }'),
}
"""Tables of which a log says which files are a version, and how one is named."""

Source = tuple[str, tuple[tuple[str, str], ...]]
"""The name of a source, and its options."""


def read_source(place: Place, given: Any) -> Source:
    """Read ``source``. Raises: CatalogError (E_POLICY)."""
    if isinstance(given, dict) and "file" in given:
        return _read_file(place, given)
    form = next((each for each in LOGGED if isinstance(given, dict) and each in given), None)
    if form is not None:
        return _read_logged(place, given, form)
    if isinstance(given, dict):
        return _read_server(place, given)
    if not isinstance(given, str) or not given or "\0" in given:
        what = "has no source" if given is None else f"source = {show(given)} is no file"
        place.fail(what, 'add source = "data.parquet" (a file or a glob)')
    if is_stored(given):
        _check_address(place, given)
        return given, ()
    engine = engine_of(given)
    if engine in SERVERS:
        place.fail(f"names a server, {engine}, by an address, which may hold a password", EXAMPLE)
    if engine is not None:
        return given, ()
    try:
        return str(place.path.expanduser().resolve().parent / Path(given).expanduser()), ()
    except RuntimeError:
        place.fail(f"source = {show(given)}", "there is no such home folder")


def _read_file(place: Place, given: Mapping[str, Any]) -> Source:
    """Read which table of a file it is, and how its text is written."""
    file = given["file"]
    if not isinstance(file, str) or engine_of(file) is not None:
        place.fail(f"source has file = {show(file)}", WRITTEN)
    stated = IN_STORES if is_stored(file) else ()
    named = {key: value for key, value in given.items() if key in ("table", "view", *stated)}
    kind = kind_of(file) or ("duckdb" if named else "csv")
    known = (*OF_FILES.get(kind, ()), *stated)
    if kind == "duckdb":
        place.check_keys(given, ("file", *known))
    written = read_delimited(place, {k: v for k, v in given.items() if k not in named})
    other = [key for key in (*named, *written.said()) if key not in known]
    if other:
        said = f"has {', '.join(known)}" if known else "says itself how it is written"
        place.fail(f"source has {', '.join(other)}, and {show(file)} is of {kind}", f"it {said}")
    if kind == "duckdb" and "table" not in named:
        place.fail("source names no table of the file", STORED)
    if "version" in named and "refresh" in named:
        place.fail("source has both version and refresh", "keep one of them")
    _check_read(place, {key: named[key] for key in named if key == "refresh"})
    said_of = tuple((key, _read_value(place, key, value)) for key, value in named.items())
    return read_source(place, file)[0], tuple(sorted((*said_of, *written.options())))


def _read_logged(place: Place, given: Mapping[str, Any], form: str) -> Source:
    """Read which version of a table with a log it is: the newest would follow the data."""
    engine, (what, example) = given.get("engine"), LOGGED[form]
    is_counted = engine == "spark" and form == "delta"
    place.check_keys(given, (form, "version", *(SPARK if is_counted else ())))
    folder, version = given[form], given.get("version")
    if not isinstance(folder, str) or engine_of(folder) is not None:
        place.fail(f"source has {form} = {show(folder)}", example)
    if is_stored(folder) and (engine is not None or folder.startswith("https://")):
        why = "a web server lists no files" if engine is None else "Spark reads a `path` there"
        place.fail(f"source has {form} = {show(folder)}, and {why}", example)
    if type(version) is not int or version < 0:
        place.fail(f"source states no version of {what}", example)
    named = read_source(place, folder)[0]
    if engine is None:
        return named, (("format", form), ("version", str(version)))
    said = {key: _read_value(place, key, value) for key, value in given.items() if key in SPARK}
    _check_read(place, said)
    return f"spark://{named}", tuple(
        sorted({**said, "delta": named, "version": str(version)}.items())
    )


def _check_address(place: Place, address: str) -> None:
    """Refuse an address of an object that holds what may be secret, or that others write otherwise.

    The address is not shown: it may hold a credential.
    """
    found = urlsplit(address)
    is_web = found.scheme == "https"
    if "@" in found.netloc or (is_web and (found.query or found.fragment)):
        hint = "a catalog is public; credentials are taken from the environment"
        place.fail("source is an address with a user, a query or a fragment", hint)
    if not found.netloc or not found.path.strip("/") or not address.isprintable():
        place.fail("source is an address without a bucket or without a key", OBJECT)
    for host, instead in CLOUDS.items():
        if is_web and host.search(found.hostname or ""):
            place.fail("source is the web address of an object in a store", f"write {instead}")


def read_spill(place: Place, given: Any, public: bool) -> tuple[tuple[str, str], ...]:
    """Read the folder in whose files codes are kept, by default in memory.

    Args:
        place: the table; a relative folder is taken from that of its catalog.
        given: ``spill`` of the catalog, None where it is not there.
        public: True for a table without a privacy unit, which has nothing to spill.

    Returns: no fact, or one named "spill" with an absolute path.

    Raises: CatalogError (E_POLICY).
    """
    if given is None:
        return ()
    if public:
        place.fail("is public and has spill", "public tables are small; leave it out")
    if not isinstance(given, str) or not given.isprintable() or not given:
        place.fail(f"spill = {show(given)}", 'spill = "/scratch", a folder with room')
    try:
        folder = Path(given).expanduser()
        return (("spill", str(place.path.expanduser().resolve().parent / folder)),)
    except RuntimeError:
        place.fail(f"spill = {show(given)}", "there is no such home folder")


def _read_server(place: Place, given: Mapping[str, Any]) -> Source:
    engine = given.get("engine")
    if not isinstance(engine, str) or engine_of(f"{engine}://") is None:
        place.fail(f"source has engine = {show(engine)}", EXAMPLE)
    _check_keys(place, engine, given)
    found = {key: _read_value(place, key, value) for key, value in given.items()}
    name = found.get("table") or found.get("path")
    if name is None or ("table" in found and "path" in found):
        place.fail("source names no table", EXAMPLE)
    if "version" in found and "refresh" in found:
        place.fail("source has both version and refresh", "keep one of them")
    _check_read(place, found)
    return f"{engine}://{name}", tuple(sorted(found.items()))


def _check_read(place: Place, found: Mapping[str, str]) -> None:
    for key, known in (("refresh", REFRESH), ("read", READ)):
        if found.get(key, known[0]) not in known:
            place.fail(f"source has {key} = {show(found[key])}", f"one of {', '.join(known)}")


def _check_keys(place: Place, engine: str, given: Mapping[str, Any]) -> None:
    """Refuse keys that the engine does not know, and those that hold secrets by their names."""
    known = (*COMMON, *KEYS.get(engine, ()))
    for key in given:
        is_free = engine not in KEYS and (key.endswith("_env") or not SECRET.search(key))
        if key in known or is_free:
            continue
        hint = f"one of {', '.join(known)}"
        if SECRET.search(key):
            hint = f"a catalog is public; name what holds it: {EXAMPLE}"
        place.fail(f"source has an unknown key {key!r}", hint)


def _read_value(place: Place, key: str, value: Any) -> str:
    if key == "view" and value is True:
        return "true"
    if not isinstance(value, str) or not value or not value.isprintable():
        place.fail(f"source has {key} = {show(value)}", f'{key} = "a text"')
    return value
