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

.PHONY: demo test test-fast lowest check format bench accuracy audit fuzz gate docs clean

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

# The lowest versions of what dpsql needs: what a statement compiles to, functions, matrices, formats.
lowest:
	$(PYTHON) -m venv build/lowest
	build/lowest/bin/python -m pip install --quiet $$($(PYTHON) tests/support/lowest.py) \
		pytest pytest-xdist hypothesis lark railroad-diagrams
	PYTHONPATH=. build/lowest/bin/python -m pytest --numprocesses 0 tests/algebra tests/ui/test_formats.py \
		tests/logical/test_functions.py tests/logical/test_function_names.py tests/grammar/test_grammar.py \
		-k "not refused and not sentences and not alike and not tools"

audit: $(VENV)/.test
	$(TESTS) tests/audit tests/privacy/test_versions.py tests/privacy/budget/test_source_claims.py \
		tests/privacy/budget/test_refusals.py tests/hostile/test_interrupts.py \
		tests/hostile/test_granted.py tests/hostile/test_files.py

# The tests that draw ask so many times what they ask in `make test`; EFFORT=10 make fuzz asks less.
fuzz: export EFFORT ?= 50
fuzz: $(VENV)/.test
	$(TESTS) $(shell grep -rl support.effort tests --include='test_*.py')
	$(BIN)/python -m tests.privacy.executors

# What every statement of the tests compiles to, beside what is recorded of it.
gate: $(VENV)/.test
	$(BIN)/python -m tests.gate

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
