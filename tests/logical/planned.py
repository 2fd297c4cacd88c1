"""Random plans over small tables, and the guarantee of their levels tried in DuckDB.

Rows are read from one of several databases: all rows, those of one unit alone, or none that is
private. What is measured is a constant: it is read from another database, whatever the rows are.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import count
from pathlib import Path

import duckdb

from dpsql.catalog.catalog import Budget, Catalog, Reference, Table, Unit
from dpsql.errors import Error
from dpsql.logical.expressions import (
    AggregateCall,
    ColumnId,
    ColumnRef,
    LogicalConstant,
    Scalar,
    ScalarCall,
    WindowCall,
)
from dpsql.logical.facts import PlanFacts
from dpsql.logical.inference import FactReader
from dpsql.logical.levels import LEVELS, LevelTable, RelationLevel
from dpsql.logical.nodes import (
    ApplyKind,
    BoundStatement,
    JoinKind,
    LogicalAggregate,
    LogicalApply,
    LogicalBound,
    LogicalFilter,
    LogicalJoin,
    LogicalLimit,
    LogicalProject,
    LogicalScan,
    LogicalSetOperation,
    LogicalShared,
    LogicalValues,
    LogicalWindow,
    Plan,
    columns_of,
    inputs_of,
)

COLUMNS = {
    "people": ("person", "a", "b"),
    "visits": ("person", "k", "a"),
    "bills": ("person", "k", "b"),
    "others": ("person", "a", "b"),
    "rows": ("a", "b"),
    "bands": ("a", "c"),
}
"""Tables with their columns: people and others are of different units, whatever these are called;
``k`` is a key of visits that bills refer to, and no unit's alone."""
UNITS = {"person": ("people", "visits", "bills"), "other": ("others",), "row of rows": ("rows",)}
SIZES = {"people": 1, "visits": 3, "bills": 2, "others": 2}
"""Rows of each unit."""
WHOLE, NOBODY, ANSWERS, OTHER_ANSWERS = "whole", "nobody", "answers", "other_answers"
_SIGNS = {"eq": "=", "lt": "<", "add": "+", "or": "OR", "and": "AND"}


def catalog() -> Catalog:
    """The catalog of these tables."""
    way = Reference("visits", (("k", "k"), ("person", "person")))
    tables = {
        "people": Table("people", "people.parquet", Unit("person", 1, "person"), {}),
        "visits": Table("visits", "visits.parquet", Unit("person", 3, "person"), {}, keys=("k",)),
        "bills": Table(
            *("bills", "bills.parquet", Unit("person", 2, "person"), {}), references=(way,)
        ),
        "others": Table("others", "others.parquet", Unit("person", 2, "other"), {}),
        "rows": Table("rows", "rows.parquet", Unit(), {}),
        "bands": Table("bands", "bands.parquet", Unit(), {}, public=True),
    }
    return Catalog(Path("t.toml"), Budget(Fraction(1), Fraction(0)), tables)


class SmallWorld:
    """Databases as schemas of one connection: all rows, and those of each unit alone."""

    def __init__(self, seed: int) -> None:
        self.database = duckdb.connect()
        self.database.execute("SET threads = 1")
        self.units: dict[str, list[tuple[str, int]]] = {name: [] for name in UNITS}
        draw = random.Random(f"world {seed}")
        bands: list[tuple[int, ...]] = [(a, draw.randrange(3)) for a in (0, 1, 2, 1)]
        rows = self._rows(draw, bands)
        for name in (ANSWERS, OTHER_ANSWERS):
            self._write(name, self._rows(draw, bands))
        self._write(WHOLE, rows)
        public = {"bands": bands}
        self._write(NOBODY, public)
        for unit, tables in UNITS.items():
            known = range(len(rows["rows"])) if unit == "row of rows" else range(1, 4)
            for each in known:
                name = f"{unit.split(' ')[0]}_{each}"
                own = {
                    table: rows[table][each : each + 1]
                    if unit == "row of rows"
                    else [row for row in rows[table] if row[0] == each]
                    for table in tables
                }
                self._write(name, {**own, **public})
                self.units[unit].append((name, each))

    def _rows(
        self, draw: random.Random, bands: list[tuple[int, ...]]
    ) -> dict[str, list[tuple[int, ...]]]:
        found: dict[str, list[tuple[int, ...]]] = {"bands": bands}
        for table, most in SIZES.items():
            found[table] = [
                (unit, draw.randrange(3), draw.randrange(3))
                for unit in (1, 2, 3)
                for _ in range(most if draw.random() < 0.7 else draw.randrange(most + 1))
            ]
        found["rows"] = [(draw.randrange(3), draw.randrange(3)) for _ in range(4)]
        return found

    def _write(self, name: str, rows: Mapping[str, Sequence[tuple[int, ...]]]) -> None:
        self.database.execute(f"CREATE SCHEMA {name}")
        for table, columns in COLUMNS.items():
            kinds = ", ".join(f"{column} BIGINT" for column in columns)
            self.database.execute(f"CREATE TABLE {name}.{table} ({kinds})")
            if rows.get(table):
                values = ", ".join(map(str, rows[table]))
                self.database.execute(f"INSERT INTO {name}.{table} VALUES {values}")

    def rows(self, sql: str) -> Counter[tuple[object, ...]]:
        """The rows of a query, with how often each is there."""
        return Counter(self.database.execute(sql).fetchall())


# ---- plans as SQL -------------------------------------------------------------------------------


@dataclass(frozen=True)
class PlanPrinter:
    """Writes a plan as SQL: rows are those of one schema, what is measured those of another."""

    facts: Mapping[int, PlanFacts]
    rows: str
    answers: str
    values: Mapping[ColumnId, str] = field(default_factory=dict)

    def sql(self, plan: Plan) -> str:
        facts = self.facts.get(id(plan))
        if facts is not None and facts.measured and self.rows != self.answers:
            return PlanPrinter(self.facts, self.answers, self.answers, self.values).sql(plan)
        shown = ", ".join(f"c{column}" for column in columns_of(plan)) or "1"
        match plan:
            case LogicalScan():
                items = ", ".join(f"{name} AS c{column}" for column, name in plan.columns)
                return f"SELECT {items} FROM {self.rows}.{plan.table}"
            case LogicalValues():
                rows = ", ".join(f"({', '.join(map(self.text, row))})" for row in plan.rows)
                return f"SELECT * FROM (VALUES {rows}) AS v({shown})"
            case LogicalShared():
                items = ", ".join(f"c{old} AS c{new}" for new, old in plan.columns)
                return f"SELECT {items} FROM {self.of(plan.input)}"
            case LogicalFilter():
                return f"SELECT * FROM {self.of(plan.input)} WHERE {self.all(plan.tests)}"
            case LogicalProject():
                items = ", ".join(f"{self.text(value)} AS c{c}" for c, value in plan.added)
                return f"SELECT *, {items} FROM {self.of(plan.input)}"
            case LogicalJoin():
                sides = self.of(plan.left), self.of(plan.right)
                kind = plan.kind.name
                return (
                    f"SELECT {shown} FROM {sides[0]} {kind} JOIN {sides[1]} ON {self.all(plan.on)}"
                )
            case LogicalApply():
                return f"SELECT *, {self.asked(plan)} AS c{plan.mark} FROM {self.of(plan.left)}"
            case LogicalAggregate():
                return self.grouped(plan)
            case LogicalWindow():
                items = ", ".join(f"{self.over(call)} AS c{c}" for c, call in plan.calls)
                return f"SELECT *, {items} FROM {self.of(plan.input)}"
            case LogicalSetOperation():
                word = plan.operation.upper() + " ALL" * plan.every
                parts = [
                    "SELECT "
                    + ", ".join(f"c{a} AS c{b}" for a, b in zip(of, plan.columns, strict=True))
                    + f" FROM {self.of(part)}"
                    for part, of in plan.parts
                ]
                return f" {word} ".join(f"({part})" for part in parts)
            case LogicalLimit():
                number = "" if plan.limit is None else f" LIMIT {self.text(plan.limit)}"
                return f"SELECT * FROM {self.of(plan.input)} ORDER BY {shown}{number}"
            case LogicalBound():
                part = "" if plan.unit is None else f"PARTITION BY c{plan.unit} "
                number = f"ROW_NUMBER() OVER ({part}ORDER BY {shown})"
                return f"SELECT * FROM {self.of(plan.input)} QUALIFY {number} <= {plan.rows}"

    def of(self, plan: Plan) -> str:
        return f"({self.sql(plan)}) AS s{next(_names)}"

    def text(self, value: Scalar) -> str:
        match value:
            case ColumnRef(column):
                return self.values.get(column, f"c{column}")
            case LogicalConstant():
                return value.sql
        parts = [self.text(each) for each in value.arguments]
        if value.function == "is":
            return f"({parts[0]} IS NULL)"
        if value.function in _SIGNS:
            return f"({f' {_SIGNS[value.function]} '.join(parts)})"
        return f"{value.function}({', '.join(parts)})"

    def all(self, tests: Sequence[Scalar]) -> str:
        return " AND ".join(map(self.text, tests)) or "TRUE"

    def asked(self, plan: LogicalApply) -> str:
        values = {column: self.text(value) for column, value in plan.parameters}
        inner = PlanPrinter(self.facts, self.rows, self.answers, {**self.values, **values})
        if plan.kind is ApplyKind.EXISTS:
            return f"EXISTS (SELECT 1 FROM {inner.of(plan.right)})"
        shown = ", ".join(f"c{column}" for column in plan.shown)
        rows = f"(SELECT {shown} FROM {inner.of(plan.right)})"
        if plan.kind is ApplyKind.SCALAR:
            return rows
        arguments = ", ".join(map(self.text, plan.arguments))
        return f"({arguments}) IN {rows}"

    def grouped(self, plan: LogicalAggregate) -> str:
        keys = [self.text(value) for _, value in plan.keys]
        items = [f"{key} AS c{c}" for key, (c, _) in zip(keys, plan.keys, strict=True)]
        items += [f"{self.call(call)} AS c{column}" for column, call in plan.calls]
        sets = plan.sets or (tuple(range(len(keys))),)
        listed = ", ".join(f"({', '.join(keys[place] for place in each)})" for each in sets)
        group = f" GROUP BY GROUPING SETS ({listed})" if keys else ""
        return f"SELECT {', '.join(items)} FROM {self.of(plan.input)}{group}"

    def call(self, call: AggregateCall) -> str:
        inner = ", ".join(map(self.text, call.arguments)) or "*"
        return f"{call.function}({'DISTINCT ' * call.distinct}{inner})"

    def over(self, call: WindowCall) -> str:
        inner = ", ".join(map(self.text, call.arguments)) or "*"
        part = ", ".join(map(self.text, call.partition))
        return f"{call.function}({inner}) OVER ({f'PARTITION BY {part}' if part else ''})"


_names = count()

# ---- the guarantee ------------------------------------------------------------------------------


def broken(world: SmallWorld, plan: Plan, facts: PlanFacts, known: Mapping[int, PlanFacts]) -> str:
    """Return the promises of its facts that a plan breaks; empty where it does not.

    Raises: duckdb.Error where DuckDB has no plan for it.
    """

    def rows(of: str, answers: str = ANSWERS) -> Counter[tuple[object, ...]]:
        return world.rows(PlanPrinter(known, of, answers).sql(plan))

    whole = rows(WHOLE)
    if not facts.is_private:
        if facts.rows is not None and whole.total() > facts.rows:
            return "more rows than are said"
        answers = OTHER_ANSWERS if facts.level is RelationLevel.PUBLIC else ANSWERS
        return "" if rows(NOBODY, answers) == whole else "a private row or an answer decides"
    if facts.unit not in world.units:
        return "rows of no unit"
    answers = OTHER_ANSWERS if facts.level is RelationLevel.ROWS else ANSWERS
    shown = columns_of(plan)
    units = [shown.index(column) for column in facts.units]
    partial = [shown.index(column) for column in facts.partial]
    if facts.stays and not units:
        return ""  # rows of no unit cannot be told from the others
    together: Counter[tuple[object, ...]] = Counter()
    for schema, unit in world.units[facts.unit]:
        own = _with_unit(rows(schema, answers), units if facts.stays else [])
        if facts.rows is not None and own.total() > facts.rows:
            return "more rows of a unit than are said"
        if any(row[place] != unit for row in own for place in units):
            return "a column that holds the unit holds another"
        if any(row[place] not in (unit, None) for row in own for place in partial):
            return "a column that may hold the unit holds another"
        together += own
    kept = _with_unit(whole, units if facts.stays else [])
    return "" if together == kept else "rows of units are not those of each alone"


def asked_of_kept_rows(
    world: SmallWorld, plan: LogicalAggregate, known: Mapping[int, PlanFacts]
) -> bool:
    """Say whether aggregates say something of public rows that stay without private ones."""
    below = known[id(plan.input)]
    unit = min(below.units, default=None)
    if not below.stays or unit is None:
        return False
    printer = PlanPrinter(known, ANSWERS, ANSWERS)
    test = ScalarCall("is", (ColumnRef(unit),))
    apart = LogicalFilter(plan.input, (test,))
    keyed = tuple(each for each in plan.keys)
    other = LogicalAggregate(apart, keyed, plan.calls, plan.sets)
    rows = world.rows(printer.grouped(other))
    return any(value not in (0, None) for row in rows for value in row[len(keyed) :])


def _with_unit(
    rows: Counter[tuple[object, ...]], places: Sequence[int]
) -> Counter[tuple[object, ...]]:
    """Rows without those that are of no unit."""
    kept = {row: n for row, n in rows.items() if all(row[place] is not None for place in places)}
    return Counter(kept)


# ---- random plans -------------------------------------------------------------------------------


class PlanDraw:
    """Draws plans; every column of a plan is a new one."""

    def __init__(self, seed: int, numbers: Iterator[int] | None = None) -> None:
        self.draw = random.Random(f"plan {seed}")
        self.numbers = count(1) if numbers is None else numbers

    def column(self) -> ColumnId:
        return ColumnId(next(self.numbers))

    def plan(self, depth: int) -> Plan:
        """A plan of so many operators below each other at most."""
        if depth == 0 or self.draw.random() < 0.15:
            return self.leaf()
        name = self.draw.choice([*OPERATORS])
        operator = OPERATORS[name]
        return operator(self, [self.plan(depth - 1) for _ in range(_INPUTS.get(name, 1))])

    def leaf(self) -> Plan:
        table = self.draw.choice([*COLUMNS, "people", "visits", "bills", "values"])
        if table == "values":
            rows = tuple((LogicalConstant(str(value)),) for value in (0, 1))
            return LogicalValues(rows, (self.column(),))
        return self.scan(table)

    def scan(self, table: str) -> LogicalScan:
        return LogicalScan(table, tuple((self.column(), name) for name in COLUMNS[table]))

    # ---- operators, over given plans ----

    def filter(self, inputs: Sequence[Plan]) -> Plan:
        return LogicalFilter(inputs[0], (self.test(columns_of(inputs[0])),))

    def project(self, inputs: Sequence[Plan]) -> Plan:
        columns = columns_of(inputs[0])
        value = self.draw.choice([self.value(columns), ColumnRef(self.draw.choice(columns))])
        return LogicalProject(inputs[0], ((self.column(), value),))

    def shared(self, inputs: Sequence[Plan]) -> Plan:
        pairs = [(self.column(), old) for old in columns_of(inputs[0])]
        chosen = [pair for pair in pairs if self.draw.random() < 0.8] or pairs[:1]
        return LogicalShared("shared", inputs[0], tuple(chosen))

    def bound(self, inputs: Sequence[Plan]) -> Plan:
        return LogicalBound(inputs[0], self.draw.choice([1, 2]))

    def join(self, inputs: Sequence[Plan], *kinds: JoinKind) -> Plan:
        left, right = inputs
        kind = self.draw.choice(kinds or [*JoinKind])
        on = [self.met(left, right) for _ in range(self.draw.choice([0, 1, 1, 2]))]
        if self.draw.random() < 0.7:
            on += self.by_name(left, right)
        return LogicalJoin(left, right, kind, tuple(on))

    def inner_join(self, inputs: Sequence[Plan]) -> Plan:
        return self.join(inputs, JoinKind.INNER)

    def left_join(self, inputs: Sequence[Plan]) -> Plan:
        if self.draw.random() < 0.5:
            return self.join(inputs, JoinKind.LEFT)
        return self.join(inputs[::-1], JoinKind.RIGHT)

    def full_join(self, inputs: Sequence[Plan]) -> Plan:
        return self.join(inputs, JoinKind.FULL)

    def half_join(self, inputs: Sequence[Plan]) -> Plan:
        return self.join(inputs, JoinKind.SEMI, JoinKind.ANTI)

    def apply(self, inputs: Sequence[Plan]) -> Plan:
        left, right = inputs
        parameters: list[tuple[ColumnId, Scalar]] = []
        pairs = [
            *self.by_name(left, right),
            *([self.met(left, right)] if self.draw.random() < 0.4 else []),
        ]
        tests: list[Scalar] = []
        for pair in pairs if self.draw.random() < 0.8 else ():
            parameter = self.column()
            parameters.append((parameter, pair.arguments[0]))
            tests.append(ScalarCall(pair.function, (pair.arguments[1], ColumnRef(parameter))))
        if tests:
            right = LogicalFilter(right, tuple(tests))
        kind = self.draw.choice([*ApplyKind])
        shown: tuple[ColumnId, ...] = ()
        arguments: tuple[Scalar, ...] = ()
        if kind is ApplyKind.SCALAR:
            call = self.draw.choice([self.counted(), self.summed(columns_of(right))])
            right = LogicalAggregate(right, (), ((self.column(), call),))
            shown = columns_of(right)
        elif kind is ApplyKind.IN:
            chosen = self.by_name(*inputs) or [self.met(*inputs)]
            for each in chosen:
                one, other = each.arguments
                assert isinstance(other, ColumnRef)
                arguments, shown = (*arguments, one), (*shown, other.column)
        return LogicalApply(left, right, kind, self.column(), shown, arguments, tuple(parameters))

    def aggregate(self, inputs: Sequence[Plan]) -> Plan:
        columns = columns_of(inputs[0])
        chosen = [column for column in columns if self.draw.random() < 0.5]
        keys = tuple((self.column(), ColumnRef(column)) for column in chosen)
        calls = [self.counted(), self.summed(columns)]
        made = tuple((self.column(), call) for call in calls if self.draw.random() < 0.7)
        sets = None
        if len(keys) > 1 and self.draw.random() < 0.3:
            sets = (tuple(range(len(keys))), (0,))
        if not keys and not made:
            made = ((self.column(), self.counted()),)
        return LogicalAggregate(inputs[0], keys, made, sets)

    def window(self, inputs: Sequence[Plan]) -> Plan:
        columns = columns_of(inputs[0])
        part = tuple(ColumnRef(column) for column in columns if self.draw.random() < 0.5)
        function = self.draw.choice(["count", "sum"])
        arguments = () if function == "count" else (ColumnRef(self.draw.choice(columns)),)
        return LogicalWindow(inputs[0], ((self.column(), WindowCall(function, arguments, part)),))

    def set_operation(self, inputs: Sequence[Plan]) -> Plan:
        width = self.draw.randint(1, min(len(columns_of(each)) for each in inputs))
        is_end = self.draw.random() < 0.5  # the unit comes first
        cut = slice(-width, None) if is_end else slice(width)
        parts = tuple((each, columns_of(each)[cut]) for each in inputs)
        operation = self.draw.choice(["union", "intersect", "except"])
        every = self.draw.random() < 0.5
        made = tuple(self.column() for _ in range(width))
        return LogicalSetOperation(operation, every, parts, made)

    def limit(self, inputs: Sequence[Plan]) -> Plan:
        number = None if self.draw.random() < 0.3 else LogicalConstant("2")
        return LogicalLimit(inputs[0], (), number)

    # ---- expressions ----

    def value(self, columns: Sequence[ColumnId]) -> Scalar:
        one, other = (ColumnRef(self.draw.choice(columns)) for _ in range(2))
        function = self.draw.choice(["add", "coalesce"])
        return ScalarCall(function, (one, other))

    def test(self, columns: Sequence[ColumnId]) -> ScalarCall:
        one = ColumnRef(self.draw.choice(columns))
        constant = LogicalConstant(str(self.draw.randrange(3)))
        column = ColumnRef(self.draw.choice(columns))
        other: Scalar = constant if self.draw.random() < 0.5 else column
        return ScalarCall(self.draw.choice(["eq", "lt"]), (one, other))

    def met(self, left: Plan, right: Plan) -> ScalarCall:
        one, other = (ColumnRef(self.draw.choice(columns_of(each))) for each in (left, right))
        return ScalarCall(self.draw.choice(["eq", "eq", "lt"]), (one, other))

    def by_name(self, left: Plan, right: Plan) -> list[ScalarCall]:
        """Equal columns of some name that both have: a unit, a key, or another."""
        names = [_named(each) for each in (left, right)]
        both = sorted(set(names[0].values()) & set(names[1].values()))
        if not both:
            return []
        chosen = self.draw.choice(both)
        one, other = (
            ColumnRef(min(column for column, name in each.items() if name == chosen))
            for each in names
        )
        return [ScalarCall("eq", (one, other))]

    def counted(self) -> AggregateCall:
        return AggregateCall("count", ())

    def summed(self, columns: Sequence[ColumnId]) -> AggregateCall:
        value = self.draw.choice([ColumnRef(self.draw.choice(columns)), self.value(columns)])
        return AggregateCall(self.draw.choice(["sum", "count", "min"]), (value,))


Operator = Callable[[PlanDraw, Sequence[Plan]], Plan]
OPERATORS: dict[str, Operator] = {
    "filter": PlanDraw.filter,
    "project": PlanDraw.project,
    "shared": PlanDraw.shared,
    "bound": PlanDraw.bound,
    "inner join": PlanDraw.inner_join,
    "left join": PlanDraw.left_join,
    "full join": PlanDraw.full_join,
    "half join": PlanDraw.half_join,
    "apply": PlanDraw.apply,
    "aggregate": PlanDraw.aggregate,
    "window": PlanDraw.window,
    "set operation": PlanDraw.set_operation,
    "limit": PlanDraw.limit,
}
"""Operators by the names that the table has for them."""
_INPUTS = {
    **dict.fromkeys(("inner join", "left join", "full join", "half join", "apply"), 2),
    "set operation": 2,
}


def _named(plan: Plan) -> dict[ColumnId, str]:
    """The columns of a plan that are those of tables, with their names there."""
    match plan:
        case LogicalScan():
            return dict(plan.columns)
        case LogicalFilter() | LogicalProject() | LogicalWindow() | LogicalLimit() | LogicalBound():
            return _named(plan.input)
        case LogicalShared():
            below = _named(plan.input)
            return {new: below[old] for new, old in plan.columns if old in below}
        case LogicalJoin():
            half = plan.kind in (JoinKind.SEMI, JoinKind.ANTI)
            return _named(plan.left) | ({} if half else _named(plan.right))
        case LogicalApply():
            return _named(plan.left)
        case LogicalAggregate():
            below = _named(plan.input)
            return {
                column: below[value.column]
                for column, value in plan.keys
                if isinstance(value, ColumnRef) and value.column in below
            }
        case LogicalSetOperation():
            part, shown = plan.parts[0]
            below = _named(part)
            pairs = zip(plan.columns, shown, strict=True)
            return {column: below[old] for column, old in pairs if old in below}
    return {}


_KEPT: deque[FactReader] = deque(maxlen=1)
"""The last reader: what it read keeps its address as long."""


def read(
    plan: Plan, table: LevelTable = LEVELS
) -> tuple[Plan, PlanFacts, dict[int, PlanFacts]] | None:
    """A plan with its facts, and those of all operators below; None where it is refused."""
    reader = FactReader(catalog(), BoundStatement(LogicalShared("all", plan, ()), ()), table)
    try:
        found = reader.of(plan, None)
    except Error:
        return None
    _KEPT.append(reader)
    return found.plan, found.facts, reader.known


@dataclass(frozen=True)
class Recipe:
    """Recipe of a plan: made again and again, each time of new columns."""

    operator: str
    seed: int
    inputs: tuple[Recipe, ...] = ()

    def made(self, numbers: Iterator[int]) -> Plan:
        """A plan of this kind."""
        inputs = [each.made(numbers) for each in self.inputs]
        draw = PlanDraw(self.seed, numbers)
        return OPERATORS[self.operator](draw, inputs) if inputs else draw.scan(self.operator)


class Recipes:
    """Plans of every level, by their recipes."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(f"recipes {seed}")
        rows = [Recipe(name, 0) for name in COLUMNS]
        self.of: dict[RelationLevel, list[Recipe]] = {level: [] for level in RelationLevel}
        for each in rows * 3:
            self._keep(each)
        for seed in range(6):
            self._keep(Recipe("inner join", seed, (Recipe("bands", 0), Recipe("rows", 0))))
        for operator, inputs, wanted in (
            ("aggregate", "R", RelationLevel.NOISY),
            ("inner join", "RN", RelationLevel.BOTH),
            ("left join", "PR", RelationLevel.ROWS),
            ("left join", "PB", RelationLevel.BOTH),
            *((name, "R" * _INPUTS.get(name, 1), RelationLevel.ROWS) for name in OPERATORS),
        ):
            for _ in range(25):
                self._keep(self.over(operator, tuple(map(RelationLevel, inputs))), wanted)
            if operator == "inner join" and inputs == "RN":
                for table in [*SIZES, "rows"] * 3:
                    answers = self.draw.choice(self.of[RelationLevel.NOISY])
                    made = Recipe(
                        operator, self.draw.randrange(1 << 40), (Recipe(table, 0), answers)
                    )
                    self._keep(made, wanted)
                wide = [each for each in self.of[RelationLevel.ROWS] if each.inputs]
                for each in wide * 2:  # several rows of a unit that no column holds
                    answers = self.draw.choice(self.of[RelationLevel.NOISY])
                    made = Recipe("left join", self.draw.randrange(1 << 40), (each, answers))
                    self._keep(made, wanted)

    def over(self, operator: str, levels: Sequence[RelationLevel]) -> Recipe:
        """A recipe of an operator over inputs of some levels, half of the time those of people."""
        chosen = []
        for level in levels:
            known = self.of[level]
            plain = [each for each in known if not each.inputs and each.operator in SIZES]
            chosen.append(self.draw.choice(plain if plain and self.draw.random() < 0.4 else known))
        return Recipe(operator, self.draw.randrange(1 << 40), tuple(chosen))

    def _keep(self, recipe: Recipe, wanted: RelationLevel | None = None) -> None:
        found = read(recipe.made(count(1)))
        if found is not None and wanted in (None, found[1].level):
            self.of[found[1].level].append(recipe)


def walk_plan(plan: Plan) -> Iterator[Plan]:
    """A plan and all below it, what is above first; what is shared comes at every mention."""
    waiting = [plan]
    while waiting:
        found = waiting.pop()
        yield found
        waiting += reversed(inputs_of(found))
