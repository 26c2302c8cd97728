# Every target works from a fresh clone; `make` alone lists them. Paths are relative, so a space in the clone's is fine.
PYTHON ?= python3
ARGS ?=
JOBS ?= 2
BIN := .venv/bin
READY := .venv/.ready
BENCH_READY := .venv/.ready-bench

.DEFAULT_GOAL := help
.PHONY: help setup train test test-slow test-gpu lint format type check bench clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

setup: $(READY) ## make .venv and install rlcli with its development tools

train: $(READY) ## train DQN on Pong with the cpu sampler; more options in ARGS="n_steps=20_000 env=cartpole"
	$(BIN)/rlcli train $(if $(filter algo=% experiment=%,$(ARGS)),,algo=dqn) \
		$(if $(filter sampler=% experiment=%,$(ARGS)),,sampler=cpu) $(ARGS)

test: $(READY) ## the fast tests, JOBS=2 files at a time; ARGS goes to pytest
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile $(ARGS)

test-slow: $(READY) ## learning runs of minutes
	$(BIN)/python -m pytest -m slow $(ARGS)

test-gpu: $(READY) ## tests that need a CUDA device
	$(BIN)/python -m pytest -m gpu $(ARGS)

lint: $(READY) ## ruff, formatting, types; changes nothing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY) ## put the code into its format and fix what ruff can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

type: $(READY) ## mypy alone
	$(BIN)/mypy

check: lint test ## what continuous integration runs

bench: $(BENCH_READY) ## speed, as ratios to plain loops and to stable-baselines3
	$(BIN)/python benchmarks/bench.py $(ARGS)

clean: ## remove .venv, caches and build products; runs stay
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml constraints.txt hatch_build.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "rlcli needs Python 3.11 or newer, $(PYTHON) is older: make setup PYTHON=python3.11"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo 'installing rlcli and its development tools into .venv; the first time takes minutes'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,video,play,onnx]'
	@touch $@

$(BENCH_READY): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
	@touch $@
