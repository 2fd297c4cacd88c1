"""Drafts by a codebook: whatever it says, the draft is a catalog, and no value is in it."""

from __future__ import annotations

import json
import random
import tomllib
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyreadstat
import pytest

from dpsql.catalog.codebooks import ddl
from dpsql.catalog.codebooks.read import read_codebook
from dpsql.catalog.draft import draft
from dpsql.catalog.read import read_catalog
from dpsql.dbapi.drafting import draft_catalog
from dpsql.errors import UsageError
from dpsql.privacy.doors.vaults import describe_data
from tests.support.effort import effort

ROWS = "sex,age,weight,born,smokes,ward,note\nf,30,70.5,2001-02-03,true,1,x\n"
FIELDS: list[dict[str, Any]] = [
    {"name": "sex", "type": "string", "constraints": {"enum": ["female", "male"]}},
    {"name": "AGE", "type": "integer", "constraints": {"minimum": 0, "maximum": 120}},
    {"name": "weight", "type": "number", "constraints": {"minimum": 0, "maximum": 300.5}},
    {
        "name": "born",
        "type": "date",
        "constraints": {"minimum": "1990-01-01", "maximum": "2020-12-31"},
    },
    {"name": "smokes", "type": "boolean"},
    {"name": "ward", "type": "integer", "constraints": {"enum": [1, 2, 5]}},
    {"name": "note", "type": "any"},
]
EXPECTED = {
    "sex": {"type": "text", "domain": ["female", "male"]},
    "age": {"type": "integer", "domain": [0, 120]},
    "weight": {"type": "number", "bounds": [0, 300.5]},
    "born": {"type": "date", "domain": ["1990-01-01", "2020-12-31"], "by": "month"},
    "smokes": {"type": "boolean", "domain": [False, True]},
    "ward": {"type": "integer", "domain": [1, 2, 5]},
    "note": {"type": "text"},
}


def drafted(folder: Path, codebook: Any, rows: str = ROWS) -> str:
    (folder / "t.csv").write_text(rows)
    (folder / "schema.json").write_text(json.dumps(codebook))
    return draft_catalog(folder / "t.csv", folder=folder, codebook=folder / "schema.json")


def decided(folder: Path, text: str) -> Path:
    """A draft whose unit was decided, as a file."""
    (folder / "c.toml").write_text(text.replace('# privacy_unit = "row"', 'privacy_unit = "row"'))
    return folder / "c.toml"


def json_schema(fields: list[dict[str, Any]]) -> dict[str, Any]:
    known = {"any": {}, "date": {"type": "string", "format": "date"}}
    properties = {
        each["name"]: {
            **known.get(each["type"], {"type": each["type"]}),
            **each.get("constraints", {}),
        }
        for each in fields
    }
    return {"type": "array", "items": {"type": "object", "properties": properties}}


def test_every_kind_of_codebook_declares_the_same(tmp_path: Path) -> None:
    package = {"resources": [{"name": "t", "schema": {"fields": FIELDS}}]}
    for codebook in ({"fields": FIELDS}, package, json_schema(FIELDS)):
        text = drafted(tmp_path, codebook)
        assert tomllib.loads(text)["table"]["t"]["column"] == EXPECTED
        assert text.count("# from the codebook") == 6
        assert "looks like" not in text.split("note ")[0].split(".column]")[1]
    other = drafted(tmp_path, {"fields": FIELDS}, ROWS + "m,99,1.5,1950-01-01,false,7,y\n")
    assert other == drafted(tmp_path, {"fields": FIELDS})


def test_any_codebook_makes_a_catalog(tmp_path: Path) -> None:
    rng = random.Random(4)
    (tmp_path / "t.csv").write_text(ROWS)
    (table,) = describe_data(str(tmp_path / "t.csv"))
    odd: list[Any] = [None, "", "a", "é'\"", 1, 2, 2.5, -1, True, 10**20, "2024-01-01", []]
    for _ in range(effort(150)):
        fields = [
            {
                "name": name,
                "type": rng.choice(
                    ["string", "integer", "number", "boolean", "date", ["null", "integer"]]
                ),
                "constraints": {
                    key: value
                    for key, value in {
                        "enum": rng.choices(odd[1:-1], k=rng.randint(0, 4)),
                        "minimum": rng.choice(odd),
                        "maximum": rng.choice(odd),
                    }.items()
                    if rng.random() < 0.6
                },
            }
            for name in ("sex", "age", "weight")
        ]
        (tmp_path / "schema.json").write_text(json.dumps({"fields": fields}))
        text = draft([table], read_codebook(tmp_path / "schema.json"))
        read_catalog(decided(tmp_path, text))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"fields": 3}', '{"properties": []}', "\xff"])
def test_what_is_no_codebook_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(ROWS)
    (tmp_path / "s.json").write_bytes(text.encode("latin-1"))
    for name in ("s.json", "gone.json"):
        with pytest.raises(UsageError) as caught:
            draft_catalog(tmp_path / "t.csv", codebook=tmp_path / name)
        assert "Table Schemas" in str(caught.value.hint)


REDCAP = """"Variable / Field Name","Form Name","Field Type",\
"Choices, Calculations, OR Slider Labels",\
"Text Validation Type OR Show Slider Number","Text Validation Min","Text Validation Max",\
"Required Field?"
sex,a,radio,"1, male | 2, female",,,,y
smokes,a,yesno,,,,,
ward,a,dropdown,"A, surgery, old | B, medicine",,,,y
age,a,text,,integer,0,120,y
weight,a,text,,number,0,300.5,
born,a,text,,date_ymd,1990-01-01,2020-12-31,y
note,a,notes,,,,,
race,a,checkbox,"1, x | -2, y",,,,
"""
DDI = """<codeBook xmlns="ddi:codebook:2_5"><dataDscr>
<var name="SEX"><catgry><catValu>1</catValu><labl>male</labl></catgry>
<catgry><catValu>2</catValu><labl>female</labl></catgry>
<catgry missing="Y"><catValu>9</catValu><labl>refused</labl></catgry>
<varFormat type="numeric"/></var>
<var name="age" dcml="0"><valrng><range min="0" max="120"/></valrng>
<varFormat type="numeric"/></var>
<var name="ward"><varFormat type="character"/></var>
</dataDscr></codeBook>"""


def declared(folder: Path, codebook: str, rows: str) -> dict[str, Any]:
    (folder / "t.csv").write_text(rows)
    text = draft_catalog(folder / "t.csv", folder=folder, codebook=folder / codebook)
    read_catalog(decided(folder, text))
    found: dict[str, Any] = {}
    for line in text.splitlines():
        if "# from the codebook" in line:
            found |= tomllib.loads(line)
    return found


def test_a_dictionary_of_redcap_declares_choices_and_ranges(tmp_path: Path) -> None:
    (tmp_path / "dictionary.csv").write_text(REDCAP)
    rows = "sex,smokes,ward,age,weight,born,note,race___1,race____2\n1,0,A,5,1.5,2001-01-01,x,1,0\n"
    assert declared(tmp_path, "dictionary.csv", rows) == {
        "sex": {"type": "text", "labels": {"1": "male", "2": "female"}},
        "smokes": {"type": "text", "labels": {"1": "Yes", "0": "No"}, "null": True},
        "ward": {"type": "text", "labels": {"A": "surgery, old", "B": "medicine"}},
        "age": {"type": "integer", "domain": [0, 120]},
        "weight": {"type": "number", "bounds": [0, 300.5], "null": True},
        "born": {"type": "date", "domain": ["1990-01-01", "2020-12-31"], "by": "month"},
        "race___1": {"type": "text", "labels": {"0": "Unchecked", "1": "Checked"}},
        "race____2": {"type": "text", "labels": {"0": "Unchecked", "1": "Checked"}},
    }


def test_a_codebook_of_ddi_declares_categories_and_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "study.xml").write_text(DDI)
    assert declared(tmp_path, "study.xml", "sex,age,ward\n1,5,A\n") == {
        "sex": {"type": "text", "labels": {"1": "male", "2": "female"}, "null": True},
        "age": {"type": "integer", "domain": [0, 120]},
        "ward": {"type": "text"},
    }


DDL = """-- made by a dump
CREATE TYPE public.ward_kind AS ENUM ('A', 'B');
CREATE DOMAIN public.odd AS integer CHECK (VALUE > 0);
CREATE TABLE public.t (
  "SEX" character varying(6) NOT NULL,
  age integer NOT NULL CHECK (age >= 0 AND 120 >= age),
  weight double precision NOT NULL CHECK (weight BETWEEN 0 AND 300.5),
  born date NOT NULL, smokes boolean NOT NULL, ward integer NOT NULL,
  place ward_kind, price numeric(4,1) CHECK (price IS NULL OR (price > -5 AND price <= 10)),
  paid numeric(9,2), far integer, shape geometry,
  CONSTRAINT c CHECK ((("SEX")::text = ANY ((ARRAY['female'::varchar, 'male'::varchar])::text[]))),
  CHECK (ward = 1 OR ward IN (2, 5)), CHECK (far > 0 OR age > 3), CHECK (far < weight)
);
CREATE TABLE u (age text CHECK (age IN ('young', 'old')), place text);
ALTER TABLE ONLY public.t ADD CONSTRAINT d CHECK ((born >= '1990-01-01'::date));
ALTER TABLE t ADD CONSTRAINT e CHECK (born < DATE '2020-12-31' OR born IS NULL);
ALTER TABLE t ADD CONSTRAINT f CHECK (born <= '2020-12-31');
ALTER TABLE t ADD CONSTRAINT g CHECK (paid BETWEEN 0 AND 9);
COMMENT ON COLUMN public.t.age IS 'Age in years';
"""
DBT = """
models:
  - name: t
    columns:
      - name: sex
        data_type: varchar
        tests: [not_null, {accepted_values: {values: [female, male]}}]
      - name: AGE
        data_type: integer
        description: Age in years
        data_tests: [not_null, {dbt_utils.accepted_range: {min_value: 0, max_value: 120}}]
      - name: weight
        data_type: float64
        constraints: [{type: not_null}, {type: check, expression: weight between 0 and 300.5}]
      - name: born
        data_type: date
        tests:
          - not_null
          - dbt_expectations.expect_column_values_to_be_between:
              {min_value: 1990-01-01, max_value: 2020-12-31}
      - {name: smokes, data_type: boolean, tests: [not_null]}
      - name: ward
        data_tests: [not_null, {accepted_values: {arguments: {values: [1, 2, 5], quote: false}}}]
      - {name: note, tests: [{accepted_values: {values: [a, b], where: x > 1}}]}
sources: [{name: s, tables: [{name: u, columns: [{name: age, data_type: string}]}]}]
"""
PANDERA = """
schema_type: dataframe
columns:
  sex: {dtype: str, isin: [female, male]}
  AGE: {dtype: int64, description: Age in years, in_range: {min_value: 0, max_value: 120}}
  weight: {dtype: float64, greater_than_or_equal_to: 0, less_than_or_equal_to: 300.5}
  born:
    dtype: date
    checks: {in_range: {min_value: 1990-01-01, max_value: 2020-12-31}}
  smokes: {dtype: bool}
  ward: {dtype: Int64, checks: [{value: [1, 2, 5], options: {check_name: isin}}]}
  ^x: {dtype: int64, regex: true}
  note: {dtype: geometry}
"""
ALL = {key: value for key, value in EXPECTED.items() if key != "note"}


@pytest.mark.parametrize(
    ("name", "text"), [("t.sql", DDL), ("schema.yml", DBT), ("schema.yaml", PANDERA)]
)
def test_schemas_of_programs_declare_the_same(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    assert declared(tmp_path, name, ROWS) == ALL
    drawn = draft_catalog(tmp_path / "t.csv", folder=tmp_path, codebook=tmp_path / name)
    assert "# from the codebook: Age in years\n" in drawn


def test_a_check_permits_no_less_than_the_database(tmp_path: Path) -> None:
    (tmp_path / "t.sql").write_text(DDL)
    assert declared(tmp_path, "t.sql", "place,price,paid,far,shape\nA,1.5,2,3,x\n") == {
        "place": {"type": "text", "domain": ["A", "B"], "null": True},
        "price": {"type": "decimal", "domain": [-5, 10], "step": 0.1, "null": True},
        "paid": {"type": "decimal", "domain": [0, 9], "step": 0.01, "null": True},
        "far": {"type": "integer", "null": True},
    }


def test_columns_of_several_tables_are_those_of_the_table_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "t.sql").write_text(DDL)
    for name, expected in (("u", ["young", "old"]), ("t", [0, 120]), ("other", None)):
        (tmp_path / f"{name}.csv").write_text("age,place,far\n1,a,1\n")
        text = draft_catalog(tmp_path / f"{name}.csv", folder=tmp_path, codebook=tmp_path / "t.sql")
        column = tomllib.loads(text)["table"][name]["column"]
        assert column["age"].get("domain") == expected  # both have it, and say different things
        assert ("from the codebook" in text.split("far ")[1]) == (name != "u")


def test_random_checks_hold_all_that_duckdb_takes() -> None:
    rng, database = random.Random(7), duckdb.connect()
    told = 0
    for _ in range(effort(200)):
        condition = check_of(rng, 3)
        some = f"SELECT x FROM range(-9, 10) AS t(x) WHERE ({condition}) IS NOT FALSE"
        taken = [each for (each,) in database.execute(some).fetchall()]
        (found,) = (said for _, _, said in ddl.read(f"CREATE TABLE t (x INT CHECK ({condition}))"))
        if found.values:
            assert {*taken} <= {*found.values}, condition
        assert all(found.least is None or found.least <= each for each in taken), condition
        assert all(found.most is None or each <= found.most for each in taken), condition
        told += bool(found.values) or None not in (found.least, found.most)
    assert told > 10  # most say nothing of x, and some do
    database.close()


def check_of(rng: random.Random, depth: int) -> str:
    """A condition on x."""
    a, b = sorted(rng.choices(range(-9, 10), k=2))
    if depth and rng.random() < 0.6:
        word = rng.choice(["AND", "OR", "AND NOT", "OR NOT"])
        return f"({check_of(rng, depth - 1)} {word} {check_of(rng, depth - 1)})"
    plain = [f"x {sign} {a}" for sign in (">=", ">", "<", "<=", "=", "<>")]
    turned = [f"{a} {sign} x" for sign in (">=", ">", "<", "<=", "=")]
    others = [f"x BETWEEN {a} AND {b}", f"x IN ({a}, {b}, 3)", f"x NOT IN ({a})", "x IS NULL"]
    return rng.choice([*plain, *turned, *others, f"x + 1 > {a}", f"x NOT BETWEEN {a} AND {b}"])


def test_a_schema_of_pydantic_declares_enums_labels_and_null(tmp_path: Path) -> None:
    schema = {
        "$defs": {"Ward": {"enum": ["A", "B"], "type": "string", "title": "Ward"}},
        "properties": {
            "ward": {"$ref": "#/$defs/Ward"},
            "age": {
                "anyOf": [
                    {"type": "integer", "minimum": 0, "exclusiveMaximum": 121},
                    {"type": "null"},
                ],
                "description": "Age in\nyears",
            },
            "sex": {"oneOf": [{"const": 1, "title": "male"}, {"const": 2, "title": "female"}]},
            "kind": {"const": "x", "type": "string"},
            "loop": {"$ref": "#/properties/loop"},
        },
    }
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    assert declared(tmp_path, "schema.json", "ward,age,sex,kind,loop\nA,1,1,x,y\n") == {
        "ward": {"type": "text", "domain": ["A", "B"]},
        "age": {"type": "integer", "domain": [0, 120], "null": True},
        "sex": {"type": "text", "labels": {"1": "male", "2": "female"}},
        "kind": {"type": "text", "domain": ["x"]},
    }


@pytest.mark.parametrize("end", ["json", "yaml"])
def test_missing_values_of_all_columns_are_those_of_the_file(end: str, tmp_path: Path) -> None:
    fields = [
        {"name": "a", "type": "integer", "missingValues": ["NA", -9, 99], "title": "Count"},
        {"name": "b", "type": "string", "categories": [{"value": 1, "label": "low"}]},
    ]
    package = {
        "resources": [
            {"name": "t", "schema": {"fields": fields, "missingValues": ["", "NA", "-9"]}}
        ]
    }
    (tmp_path / f"p.{end}").write_text(json.dumps(package))  # is YAML as well
    (tmp_path / "t.csv").write_text("a,b\n1,1\n-9,NA\n")
    text = draft_catalog(tmp_path / "t.csv", folder=tmp_path, codebook=tmp_path / f"p.{end}")
    table = tomllib.loads(text)["table"]["t"]
    assert table["source"]["missing"] == ["-9", "NA"]
    assert table["column"] == {
        "a": {"type": "integer", "null": True},
        "b": {"type": "text", "labels": {"1": "low"}, "null": True},
    }
    assert "# from the codebook: Count; missing there: 99\n" in text
    assert "in the codebook: -9, NA" in text
    (tmp_path / "t.csv").write_text("a,b,c\n1,1,-9\n")  # where it may be a value
    text = draft_catalog(tmp_path / "t.csv", folder=tmp_path, codebook=tmp_path / f"p.{end}")
    assert tomllib.loads(text)["table"]["t"]["source"] == "t.csv"
    assert "missing there: -9, 99, NA" in text


def test_a_file_of_spss_is_a_codebook_of_its_export(tmp_path: Path) -> None:
    pyreadstat.write_sav(
        pd.DataFrame({"sex": [1.0, 9.0], "age": [30.0, 31.0]}),
        str(tmp_path / "study.sav"),
        variable_value_labels={"sex": {1: "male", 2: "female", 9: "refused"}},
        missing_ranges={"sex": [9]},
        column_labels=["Sex at birth", ""],
    )
    found = declared(tmp_path, "study.sav", "sex,age\n1,30\n")
    assert found == {"sex": {"type": "text", "labels": {"1": "male", "2": "female"}, "null": True}}
    text = draft_catalog(tmp_path / "t.csv", folder=tmp_path, codebook=tmp_path / "study.sav")
    assert "from the codebook: Sex at birth; missing there: 9" in text


FAULTS = {
    "a.json": (b'{\n "fields": [}', "is no JSON: Expecting value, line 2, column 13"),
    "b.yaml": (b"a: 1\nb: [1,\n", "is no YAML: .* line 3, column 1"),
    "c.yml": (b"[" * 200 + b"]" * 200, "nested too deeply"),
    "d.xml": (b"<a>\n<b></a>", "is no XML: mismatched tag, line 2, column 6"),
    "e.xml": (b"<?xml version='1.0' encoding='odd'?><a/>", "encoding"),
    "f.sql": (b"CREATE TABLE t (\n a int int b);", "is no SQL, line 2, column"),
    "g.sql": (b"CREATE TABLE t (a int check (a = 'x))", "is no SQL: a quote"),
    "h.csv": (b'field_name,field_type\nx,"te"xt\n', "is no CSV: .* line 2"),
    "i.json": (b'{"fields": []}\n\xff', "is no text in UTF-8, line 2, column 1"),
    "j.json": (b" \n", "is empty"),
    "k.sql": (b"SELECT 1", "describes no column"),
    "l.json": (b"[" * 100_000, "nested too deeply"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_of_a_codebook_has_its_place(name: str, tmp_path: Path) -> None:
    raw, message = FAULTS[name]
    (tmp_path / name).write_bytes(raw)
    (tmp_path / "t.csv").write_text(ROWS)
    with pytest.raises(UsageError, match=message) as caught:
        draft_catalog(tmp_path / "t.csv", codebook=tmp_path / name)
    assert "CREATE TABLE" in str(caught.value.hint)


def test_a_codebook_that_grows_when_it_is_read_is_not(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x]"] + [f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 60)]
    (tmp_path / "bomb.yml").write_text("\n".join(lines))
    (tmp_path / "t.csv").write_text(ROWS)
    with pytest.raises(UsageError, match="describes no column"):
        draft_catalog(tmp_path / "t.csv", codebook=tmp_path / "bomb.yml")
    entities = "".join(f'<!ENTITY a{i} "{f"&a{i - 1};" * 10}">' for i in range(1, 12))
    bomb = f'<!DOCTYPE a [<!ENTITY a0 "x">{entities}]><a>&a11;</a>'
    (tmp_path / "bomb.xml").write_text(bomb)
    with pytest.raises(UsageError, match="is no XML"):
        draft_catalog(tmp_path / "t.csv", codebook=tmp_path / "bomb.xml")


@pytest.mark.parametrize("name", ["book.csv", "book.xml"])
def test_other_files_are_no_codebooks(name: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(ROWS)
    for text in ("<codeBook>", "<a/>" if name.endswith("xml") else "a,b\n1,2\n", ""):
        (tmp_path / name).write_text(text)
        with pytest.raises(UsageError, match="codebook"):
            draft_catalog(tmp_path / "t.csv", codebook=tmp_path / name)
