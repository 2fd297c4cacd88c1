"""Write the mechanical workloads adult_marginals.sql and adult_cdf.sql.

Run ``python demo_data/make_workloads.py``.
"""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

HERE = Path(__file__).parent
MARGINAL_COLUMNS = ("workclass", "education", "marital_status", "relationship", "race", "sex")
CDF_AGES = range(20, 81)


def main() -> None:
    """Write both files."""
    (HERE / "adult_marginals.sql").write_text(marginals_text(), encoding="utf-8")
    (HERE / "adult_cdf.sql").write_text(cdf_text(), encoding="utf-8")


def marginals_text() -> str:
    """Return the one-way and two-way marginals, 21 statements."""
    lines = ["-- One-way marginals.", *(marginal(c) for c in MARGINAL_COLUMNS), ""]
    lines += ["-- Two-way marginals.", *(marginal(*p) for p in combinations(MARGINAL_COLUMNS, 2))]
    return "\n".join(lines) + "\n"


def marginal(*columns: str) -> str:
    """Return one GROUP BY statement.

    >>> marginal("race", "sex")
    'SELECT race, sex, COUNT(*) AS people FROM adult GROUP BY race, sex;'
    """
    keys = ", ".join(columns)
    return f"SELECT {keys}, COUNT(*) AS people FROM adult GROUP BY {keys};"


def cdf_text() -> str:
    """Return 61 prefix counts of age."""
    lines = ["-- How many people are younger than k, for k = 20 .. 80."]
    lines += [f"SELECT COUNT(*) AS younger_than_{k} FROM adult WHERE age < {k};" for k in CDF_AGES]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
