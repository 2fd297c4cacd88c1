"""A few ordinary statements together: expected standard errors against plain noise, and planning.

Random statements over the demonstration data: groups of up to two columns with up to three
conditions, the same for the same seed. Errors are root mean squares over all rows, as EXPLAIN shows
them at epsilon 1, and ratios to those of noise on every number. Nothing is kept between requests.

Run: ``python -m benchmarks.few [statements [how many [first seed]]]``.
"""

from __future__ import annotations

import math
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

DEMO = Path(__file__).parent.parent / "demo_data"
KEYS = (
    *("sex", "race", "income", "workclass", "relationship", "marital_status"),
    *("occupation", "education", "age"),
)
VALUES = {
    "sex": ("Female", "Male"),
    "race": ("White", "Black", "Other"),
    "income": ("<=50K", ">50K"),
    "workclass": ("Private", "Local-gov"),
    "relationship": ("Wife", "Husband"),
}


def main() -> None:
    """Print a line for every request, and the geometric mean of the ratios."""
    given = [int(each) for each in sys.argv[1:]]
    statements, count, first = (*given, *(3, 12, 1)[len(given) :])
    print(f"{'seed':>6} {'stddev':>9} {'plain':>9} {'ratio':>7} {'CPU s':>7}  strategy")
    ratios = []
    with tempfile.TemporaryDirectory() as name:
        os.environ |= {"DPSQL_CACHE": "off", "XDG_STATE_HOME": name}
        for source in (DEMO / "adult.toml", DEMO / "adult.parquet"):
            shutil.copy(source, name)
        for seed in range(first, first + count):
            ratios.append(_measure(Path(name) / "adult.toml", statements, seed))
    compared = [each for each in ratios if each is not None]
    mean = math.exp(sum(map(math.log, compared)) / len(compared))
    print(f"geometric mean of {len(compared)} requests of {statements} statements: {mean:.4f}")


def _measure(catalog: Path, statements: int, seed: int) -> float | None:
    """Print a line; return the ratio, None where EXPLAIN knows no plain noise beside it."""
    import dpsql  # reads where caches are

    text = script(statements, seed)
    with dpsql.connect(catalog, epsilon=1) as connection:
        start = time.process_time()
        found = connection.explain(text)
        spent = time.process_time() - start
    plain = next((rmse for what, rmse in found.comparisons if "each query" in what), math.nan)
    method = next(each for each in str(found).splitlines() if each.startswith("strategy"))
    told = f"{found.rmse:>9.3f} {plain:>9.3f} {found.rmse / plain:>7.4f} {spent:>7.2f}"
    print(f"{seed:>6} {told}  {method.removeprefix('strategy').strip()}", flush=True)
    return None if math.isnan(plain) else found.rmse / plain


def script(statements: int, seed: int) -> str:
    """So many random statements."""
    rng = random.Random(seed)
    return ";\n".join(_statement(rng) for _ in range(statements))


def _statement(rng: random.Random) -> str:
    keys = rng.sample(KEYS, rng.choice([0, 1, 1, 2]))
    columns = rng.sample(list(VALUES), rng.choice([0, 1, 2]))
    tests = [f"{column} = '{rng.choice(VALUES[column])}'" for column in columns]
    if rng.random() < 0.3:
        tests.append(f"age BETWEEN {rng.randint(17, 50)} AND {rng.randint(51, 90)}")
    where = f" WHERE {' AND '.join(tests)}" if tests else ""
    grouped = f" GROUP BY {', '.join(keys)}" if keys else ""
    return f"SELECT {', '.join([*keys, 'COUNT(*) AS n'])} FROM adult{where}{grouped}"


if __name__ == "__main__":
    main()
