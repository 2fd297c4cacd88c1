"""Write the SQL that ibis, SQLAlchemy and pandas emit for questions about Adult.

Run in an environment of its own, with nothing of dpsql in it:
    pip install 'ibis-framework[duckdb]' sqlalchemy pandas duckdb-engine
    python grammar/emitted/capture.py grammar/emitted
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

COLUMNS = {
    "age": "int64",
    "sex": "string",
    "race": "string",
    "education": "string",
    "income": "string",
    "hours_per_week": "int64",
    "capital_gain": "float64",
}


def from_ibis() -> tuple[str, list[str]]:
    """Statements of ibis expressions, in its DuckDB dialect."""
    import ibis

    t = ibis.table(COLUMNS, name="adult")
    bands = ibis.table({"lo": "int64", "hi": "int64", "name": "string"}, name="bands")
    old = t.age >= 65
    asked = [
        t.count(),
        t.filter(t.age > 30).count(),
        t.filter((t.age > 30) & (t.sex == "Female")).count(),
        t.filter((t.age > 60) | (t.education == "Doctorate")).count(),
        t.filter(~t.race.isin(["White", "Black"])).count(),
        t.filter(t.age.between(25, 34)).count(),
        t.filter(t.education.like("%th")).count(),
        t.sex.value_counts(),
        t.group_by("sex").agg(n=t.count()),
        t.group_by(["sex", "race"]).agg(n=t.count(), total=t.hours_per_week.sum()),
        t.group_by("income").agg(mean=t.age.mean(), low=t.age.median()),
        t.group_by("sex").agg(sd=t.age.std(), var=t.age.var(how="pop")),
        t.group_by("sex").agg(n=t.count(where=old), gain=t.capital_gain.sum()),
        t.group_by((t.age // 10).name("decade")).agg(n=t.count()),
        t.group_by(old.ifelse("old", "young").name("band")).agg(n=t.count()),
        t.group_by("sex").agg(n=t.count()).filter(lambda d: d.n > 100),
        t.group_by("race").agg(n=t.count()).order_by(ibis.desc("n")).limit(3),
        t.group_by("age").agg(n=t.count()).mutate(c=lambda d: d.n.cumsum(order_by=d.age)),
        t.group_by("sex").agg(share=(t.income == ">50K").mean()),
        t.agg(q=t.age.quantile(0.9), n=t.count(), s=t.capital_gain.mean()),
        t.join(bands, t.age == bands.lo).group_by("name").agg(n=lambda d: d.count()),
        t.filter(t.sex == "Male").group_by("education").agg(n=lambda d: d.count()),
        t.select("sex", "age").filter(t.age < 30).group_by("sex").agg(n=lambda d: d.count()),
    ]
    return ibis.__version__, [str(ibis.to_sql(each, dialect="duckdb")) for each in asked]


def from_sqlalchemy() -> tuple[str, list[str]]:
    """Statements of SQLAlchemy's expression language, compiled for DuckDB with literals bound."""
    import sqlalchemy as sa
    from duckdb_engine import Dialect  # type: ignore[import-not-found, unused-ignore]

    kinds = {"int64": sa.Integer, "string": sa.String, "float64": sa.Float}
    meta = sa.MetaData()
    t = sa.Table("adult", meta, *(sa.Column(name, kinds[kind]) for name, kind in COLUMNS.items()))
    names = {"lo": sa.Integer, "hi": sa.Integer, "name": sa.String}
    bands = sa.Table("bands", meta, *(sa.Column(name, kind) for name, kind in names.items()))
    c, n = t.c, sa.func.count()
    total = n.label("n")
    asked: list[Any] = [
        sa.select(n).select_from(t),
        sa.select(n).select_from(t).where(c.age > 30),
        sa.select(n).select_from(t).where(c.age > 30, c.sex == "Female"),
        sa.select(n).select_from(t).where(sa.or_(c.age > 60, c.education == "Doctorate")),
        sa.select(n).select_from(t).where(sa.not_(c.race.in_(["White", "Black"]))),
        sa.select(n).select_from(t).where(c.race.not_in(["White", "Black"])),
        sa.select(n).select_from(t).where(c.age.between(25, 34)),
        sa.select(n).select_from(t).where(c.education.like("%th")),
        sa.select(n).select_from(t).where(c.education.startswith("Pre")),
        sa.select(n).select_from(t).where(c.sex.is_not(None), c.age != 40),
        sa.select(c.sex, n).group_by(c.sex),
        sa.select(c.sex, c.race, total, sa.func.sum(c.age)).group_by(c.sex, c.race),
        sa.select(c.sex, sa.func.avg(c.age).label("mean")).group_by(c.sex).order_by(c.sex),
        sa.select(c.race, total).group_by(c.race).order_by(sa.desc("n")).limit(3).offset(1),
        sa.select(c.race, total).group_by(c.race).having(n > 100),
        sa.select((c.age // 10).label("decade"), total).group_by("decade"),
        sa.select(sa.case((c.age < 30, "young"), else_="old").label("b"), n).group_by("b"),
        sa.select(sa.func.sum(sa.case((c.income == ">50K", 1), else_=0))).select_from(t),
        sa.select(sa.func.count().filter(c.age > 60), sa.func.count(c.sex)).select_from(t),
        sa.select(c.age, sa.func.sum(n).over(order_by=c.age).label("upto")).group_by(c.age),
        sa.select(c.sex, c.race, n).group_by(sa.func.cube(c.sex, c.race)),
        sa.select(c.sex, c.race, n).group_by(sa.func.rollup(c.sex, c.race)),
        sa.select(sa.func.percentile_cont(0.5).within_group(c.age)).select_from(t),
        sa.select(bands.c.name, n)
        .select_from(t.join(bands, c.age.between(bands.c.lo, bands.c.hi)))
        .group_by(bands.c.name),
        sa.select(sa.func.sum(c.capital_gain), sa.func.avg(c.capital_gain)).select_from(t),
    ]
    options = {"literal_binds": True}
    texts = [str(each.compile(dialect=Dialect(), compile_kwargs=options)) for each in asked]
    return str(sa.__version__), texts


class Listener:
    """A DB-API connection that hears what pandas sends."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.description = [("n",)]

    def cursor(self) -> Listener:
        return self

    def execute(self, sql: str, *parameters: Any) -> Listener:
        self.heard.append(sql)
        return self

    def fetchall(self) -> list[tuple[int]]:
        return [(1,)]

    def close(self) -> None:
        pass

    def commit(self) -> None:
        pass

    def rollback(self) -> None:
        pass


def from_pandas() -> tuple[str, list[str]]:
    """What pandas.read_sql and read_sql_query hand to a DB-API connection."""
    import pandas as pd

    asked = [
        "SELECT COUNT(*) AS n FROM adult",
        "SELECT sex, COUNT(*) AS n FROM adult GROUP BY sex",
        "\n    SELECT race, AVG(age) AS mean\n    FROM adult\n    GROUP BY race\n",
        "SELECT education, COUNT(*) AS n FROM adult WHERE age >= 25 GROUP BY 1 ORDER BY 2 DESC",
    ]
    listener = Listener()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for sql in asked:
            pd.read_sql(sql, listener)
            pd.read_sql_query(sql, listener)
    return pd.__version__, list(dict.fromkeys(listener.heard))


def main(folder: Path) -> None:
    """Write one file per tool, a statement after every blank line."""
    tools = {"ibis": from_ibis, "sqlalchemy": from_sqlalchemy, "pandas": from_pandas}
    for tool, capture in tools.items():
        version, texts = capture()
        lines = [f"-- emitted by {tool} {version}, captured by grammar/emitted/capture.py", ""]
        lines += [f"{text.strip()};\n" for text in texts]
        (folder / f"{tool}.sql").write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
