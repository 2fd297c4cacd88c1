"""Drafts by a codebook: whatever it says, the draft is a catalog, and no value is in it."""

from __future__ import annotations

import json
import random
import tomllib
from pathlib import Path
from typing import Any

import pytest

from dpsql.catalog import Catalog
from dpsql.dbapi.drafting import draft_catalog
from dpsql.errors import UsageError
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
        text = drafted(tmp_path, {"fields": fields})
        text = text.replace('# privacy_unit = "row"', 'privacy_unit = "row"')
        (tmp_path / "c.toml").write_text(text)
        Catalog.load(tmp_path / "c.toml")


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
    found: dict[str, Any] = {}
    for line in text.splitlines():
        if line.endswith("# from the codebook"):
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


@pytest.mark.parametrize("name", ["book.csv", "book.xml"])
def test_other_files_are_no_codebooks(name: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(ROWS)
    for text in ("<codeBook>", "<a/>" if name.endswith("xml") else "a,b\n1,2\n", ""):
        (tmp_path / name).write_text(text)
        with pytest.raises(UsageError, match="codebook"):
            draft_catalog(tmp_path / "t.csv", codebook=tmp_path / name)
