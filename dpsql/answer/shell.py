"""Run the outer shell of a query over its noisy cells: pure post-processing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.answer.result import INTERVAL_WIDTH, CostInfo, ReceiptInfo, Result
from dpsql.sealed import Sealed
from dpsql.sql.products import Compiled

Column = NDArray[np.float64]
Covariances = Mapping[tuple[int, int], Column]

_TYPES = {
    "BOOLEAN": "boolean",
    "VARCHAR": "text",
    "DATE": "date",
    "TIMESTAMP": "date",
    "DOUBLE": "number",
    "FLOAT": "number",
}


def build_result(
    compiled: Compiled,
    answers: Sequence[Column],
    covariances: Covariances,
    cost: CostInfo | None,
    receipt: ReceiptInfo | None,
    sealed: Sealed,
) -> Result:
    """Project, filter and order the cells of one statement.

    ``answers`` holds one column per aggregate and ``covariances`` one per pair (i <= j) of
    aggregates that the shell needs, each with one entry per result row in declared order.
    """
    if compiled.query.shell.plain:
        rows, errors, types = _project(compiled, answers, covariances)
    else:
        rows, errors, types = _evaluate(compiled, answers, covariances, cost, sealed)
    outputs = compiled.query.shell.outputs
    return Result(
        tuple(output.name for output in outputs),
        types,
        rows,
        errors,
        compiled.query.text,
        cost=cost,
        receipt=receipt,
    )


Parts = tuple[
    tuple[tuple[Any, ...], ...], tuple[tuple[float | None, ...] | None, ...], tuple[str, ...]
]


def _project(compiled: Compiled, answers: Sequence[Column], covariances: Covariances) -> Parts:
    keys = compiled.key_columns()
    columns: list[list[Any]] = []
    errors: list[tuple[float | None, ...] | None] = []
    types: list[str] = []
    for output in compiled.query.shell.outputs:
        if output.key is not None:
            columns.append(keys[output.key])
            errors.append(None)
            types.append(_type_name(compiled.types[output.key]))
        else:
            assert output.aggregate is not None
            columns.append(answers[output.aggregate].tolist())
            variance = covariances[output.aggregate, output.aggregate]
            errors.append(tuple(np.sqrt(variance).tolist()))
            types.append("number")
    return tuple(zip(*columns, strict=True)), tuple(errors), tuple(types)


def _evaluate(
    compiled: Compiled,
    answers: Sequence[Column],
    covariances: Covariances,
    cost: CostInfo | None,
    sealed: Sealed,
) -> Parts:
    shell = compiled.query.shell
    width = INTERVAL_WIDTH[cost.noise] if cost is not None else 0.0
    _fill_cells(compiled, answers, covariances, width, sealed)
    noisy = [index for index, output in enumerate(shell.outputs) if output.stddev is not None]
    kinds, found = sealed.query(shell.text())
    count = len(shell.outputs)
    rows = tuple(tuple(_plain(value) for value in row[:count]) for row in found)
    errors: list[tuple[float | None, ...] | None] = [None] * count
    for position, index in enumerate(noisy):
        errors[index] = tuple(
            None if row[index] is None else _plain(row[count + position]) for row in found
        )
    types = tuple(_type_name(kind) for kind in kinds[:count])
    return rows, tuple(errors), types


def _fill_cells(
    compiled: Compiled,
    answers: Sequence[Column],
    covariances: Covariances,
    width: float,
    sealed: Sealed,
) -> None:
    columns: dict[str, tuple[str, Sequence[object]]] = {"i": ("BIGINT", range(compiled.rows))}
    for index, values in enumerate(compiled.key_columns()):
        columns[f"k{index}"] = (compiled.types[index], values)
    for index, answer in enumerate(answers):
        columns[f"a{index}"] = ("DOUBLE", answer.tolist())
    for (i, j), covariance in covariances.items():
        columns[f"c{i}_{j}"] = ("DOUBLE", covariance.tolist())
    columns["z"] = ("DOUBLE", [width] * compiled.rows)
    sealed.fill("cells", columns)


def _plain(value: Any) -> Any:
    """NaN and infinities of post-processing become NULL."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _type_name(kind: str) -> str:
    base = kind.split("(")[0]
    return _TYPES.get(base, "number" if base == "DECIMAL" else "integer")
