# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
export OMP_NUM_THREADS ?= 2
# One more than cores: tests that wait for processes, servers and clocks left a seventh of two cores
# idle. A further worker costs 6 seconds of CPU, in which it collects the tests.
WORKERS ?= $(shell $(PYTHON) -c "import os; print(os.cpu_count() + 1)")
# Files of tests are synced more often than they are read: they are in memory where that has room.
FOLDER := $(shell df -Pm /dev/shm 2>/dev/null | awk 'NR == 2 && $$4 > 4000 { print "PYTEST_DEBUG_TEMPROOT=/dev/shm" }')
# Workers, and the command lines that tests start, read compiled modules where those may be kept.
TESTS  := $(FOLDER) PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses $(WORKERS) --dist worksteal

.PHONY: demo test test-fast check format bench accuracy audit fuzz docs clean

demo: $(VENV)/.demo
	@mkdir -p build/demo
	@cp -p demo_data/*.toml demo_data/*.parquet demo_data/*.sql build/demo/
	@# Whose budget the copies are charged to is noted in build too: make clean forgets it.
	XDG_STATE_HOME=$(CURDIR)/build/state $(BIN)/dpsql run build/demo/adult_tour.sql --catalog build/demo/adult.toml --epsilon 1 --format box
	XDG_STATE_HOME=$(CURDIR)/build/state $(BIN)/dpsql run build/demo/hospital_tour.sql --catalog build/demo/hospital.toml --epsilon 8 --format box

test: $(VENV)/.test
	$(TESTS)

test-fast: $(VENV)/.test
	$(TESTS) -m 'not jax and not slow'

check: $(VENV)/.test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(TESTS)

audit: $(VENV)/.test
	$(TESTS) tests/audit tests/privacy/test_versions.py tests/privacy/test_claims.py \
		tests/privacy/test_refusals.py tests/hostile/test_interrupts.py \
		tests/hostile/test_granted.py tests/hostile/test_files.py

fuzz: $(VENV)/.test
	GRAMMAR_SENTENCES=3000 ORACLE_TABLES=200 FUZZ_EXAMPLES=1000 INTERRUPTS=2000 ADDITIVITY_TABLES=20000 \
		VIEW_TABLES=2000 EDITED_WORLDS=500 SEQUENCES=2000 PAIRS=500 ERROR_RUNS=200 COUPLED_KEYS=1000 ENGINE_TABLES=2000 SPARK_TABLES=2000 EDGE_STATEMENTS=2000 \
		LIST_STATEMENTS=1000 NAME_STATEMENTS=1000 DPSQL_SINGULAR=200 FLOOR_COUNT=40 FLOOR_WEIGHTS=3 FAIR_SCRIPTS=180 \
		ORACLE_JOINS=200 ORACLE_CHAINS=100 PUBLIC_STATEMENTS=500 WHOLE_STATEMENTS=1000 CENSUS_EVERY=1 COMPARED=100 \
		STEPPED=200 SIDES=200 DPSQL_CHOICES=500 CROSSINGS=60 CORRUPTED_CATALOGS=1500 DPSQL_FUNCTIONS=60 DPSQL_KEPT=100 TUPLES=200 ORDINARY_STATEMENTS=400 KEPT_STATEMENTS=500 ROWS_STATEMENTS=500 FOREIGN_DAMAGES=100 TOWER_SHARES=1 SIGNATURE_STATEMENTS=3000 BOUND_CONDITIONS=200 SPELLINGS=100000 TRACES=200 \
		SPELLINGS_EVERY=1 SAME_JOIN_STATEMENTS=2000 DPSQL_TORTURE_SECONDS=60 MEMORY_STATEMENTS=60 FUZZ_MESSAGES=200000 SERVER_KILLS=500 SERVER_SEQUENCES=100 \
		IMPLIED_SUMS=200 OWNERS=60 LEDGER_DAMAGES=2000 \
		$(TESTS) tests/grammar tests/answer/test_implied_sums.py tests/engine/test_owners.py tests/privacy/test_read_only.py tests/oracle/test_random.py tests/oracle/test_statements.py tests/oracle/test_shapes.py \
		tests/oracle/test_errors_of_tour.py tests/oracle/test_lists.py tests/oracle/test_names.py \
		tests/oracle/test_private_joins.py tests/oracle/test_kept_public.py tests/oracle/test_counted_rows.py tests/oracle/test_public_tables.py tests/oracle/test_integers.py \
		tests/oracle/test_stepped_sums.py tests/oracle/test_counted_sides.py tests/oracle/test_choices_in_sums.py \
		tests/oracle/test_functions_of_columns.py tests/oracle/test_tuple_lists.py tests/oracle/test_ordinary.py tests/catalog/test_corrupted.py tests/sql/test_kept_groups.py \
		tests/oracle/test_compared.py tests/whole/test_census_compact.py tests/search/test_opt_plus.py \
		tests/plan/test_fair.py tests/plan/test_singular.py tests/plan/test_floor.py tests/plan/test_division.py \
		tests/hostile/test_fuzz.py tests/hostile/test_foreign_files.py tests/audit/test_crossings.py \
		tests/hostile/test_interrupts.py tests/privacy/test_additivity.py tests/privacy/test_undeclared.py tests/privacy/test_traces.py \
		tests/privacy/test_views.py tests/privacy/test_torture.py tests/whole/test_sequences.py tests/whole/test_edited_worlds.py tests/sql/test_edges.py tests/sql/test_known_parts.py tests/sql/test_towers.py tests/sql/test_signatures.py tests/workload/test_bound.py \
		tests/privacy/test_postgresql.py tests/privacy/test_spark.py tests/plan/test_held_memory.py \
		tests/server/test_fuzz.py tests/server/test_kills.py tests/server/test_lobby.py
	$(BIN)/python -m tests.privacy.executors

docs: $(VENV)/.test
	$(BIN)/python docs/make.py
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	$(BIN)/sphinx-build -q -W --keep-going -b html docs build/site
	@echo "the site is build/site/index.html"

format: $(VENV)/.test
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.demo
	$(BIN)/python -m benchmarks

# All published cells, each a test of its own; those that are quick are in make test.
accuracy: $(VENV)/.test
	PUBLISHED=1 $(TESTS) tests/search/test_published.py

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.demo: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.test: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	@touch $@ $(VENV)/.demo

clean:
	rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
