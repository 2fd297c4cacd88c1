"""Releases as bytes and back: integers, strategy and scales, everything an answer needs."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.plan.cells import decode_resolution, encode_resolution
from dpsql.plan.kinds import decode_strategy
from dpsql.plan.plan import Part, Plan


@dataclass(frozen=True, slots=True)
class Release:
    """A published plan with its noisy integers, and the ledger entry that paid for it.

    ``scopes`` name, part by part, the catalog and the version of the data that were measured.
    """

    plan: Plan
    values: tuple[tuple[NDArray[Any], ...], ...]
    ledger_id: str
    seq: int
    head: str
    scopes: tuple[str, ...] = ()


def encode(release: Release) -> bytes:
    """Return a release as the bytes of a zipped archive of arrays."""
    arrays: dict[str, NDArray[Any]] = {}

    def keep(array: NDArray[Any]) -> str:
        name = f"x{len(arrays)}"
        arrays[name] = array.astype(np.str_) if array.dtype == object else array
        return name

    plan = release.plan
    parts = [
        {
            "table": part.table,
            "amount": str(part.amount),
            "rows_per_unit": part.rows_per_unit,
            "units": part.units,
            "view": part.view,
            "resolutions": {
                name: encode_resolution(each, keep) for name, each in part.resolutions.items()
            },
            "strategy": part.strategy.encode(keep),
            "values": [keep(value) for value in values],
        }
        for part, values in zip(plan.parts, release.values, strict=True)
    ]
    facts = {
        "noise": plan.noise,
        "epsilon": str(plan.epsilon),
        "delta": str(plan.delta),
        "rho": None if plan.rho is None else str(plan.rho),
        "parts": parts,
        "receipt": [release.ledger_id, release.seq, release.head],
        "scopes": list(release.scopes),
    }
    arrays["facts"] = np.frombuffer(json.dumps(facts).encode(), dtype=np.uint8)
    return zipped(arrays)


def decode(body: bytes) -> Release:
    """Return the release that ``encode`` wrote.

    Raises: ValueError, KeyError, TypeError, OSError, BadZipFile for anything else.
    """
    with np.load(io.BytesIO(body), allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    facts = json.loads(arrays["facts"].tobytes())

    parts, values = [], []
    for item in facts["parts"]:
        strategy = decode_strategy({"noise": facts["noise"], **item["strategy"]}, arrays)
        resolutions = {
            name: decode_resolution(each, arrays) for name, each in item["resolutions"].items()
        }
        parts.append(
            Part(
                table=item["table"],
                strategy=strategy,
                resolutions=resolutions,
                amount=Fraction(item["amount"]),
                rows_per_unit=item["rows_per_unit"],
                units=item["units"],
                view=None if item.get("view") is None else tuple(item["view"]),
            )
        )
        values.append(tuple(_integers(arrays[key]) for key in item["values"]))
    rho = None if facts["rho"] is None else Fraction(facts["rho"])
    plan = Plan(
        tuple(parts), facts["noise"], Fraction(facts["epsilon"]), Fraction(facts["delta"]), rho
    )
    scopes = tuple(facts.get("scopes", ()))
    ledger_id, seq, head = facts["receipt"]
    return Release(plan, tuple(values), ledger_id, seq, head, scopes)


def zipped(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Return what ``np.load`` reads; noise hardly compresses, so little effort is made."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.asanyarray(array), allow_pickle=False)
    return buffer.getvalue()


def _integers(array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype.kind == "U":
        return np.array([int(text) for text in array.tolist()], dtype=object)
    return array
