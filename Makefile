# Works with GNU make and with the make of macOS; recipes are plain POSIX sh.
PYTHON ?= python3
VENV   ?= .venv

.DEFAULT_GOAL := help
.PHONY: help demo refund-demo order-demo pipeline-demo test compose-test explore explore-nightly chaos lint bench format lock clean

# One environment serves all targets: the dev set contains the demo set at the same pins.
venv = @command -v $(PYTHON) >/dev/null 2>&1 || { \
	echo "fencepost: no '$(PYTHON)' here. Install Python 3.11 or newer, or: make PYTHON=/path/to/python3"; \
	exit 1; }; $(PYTHON) tools/venv.py --venv $(VENV)

help: ## list the targets
	@echo "usage: make TARGET [ARGS='...']"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## run the three-act release demo (ARGS='--postgres', '--real-clock', '--unfenced')
	$(venv) demo
	@$(VENV)/bin/python -m coordinator demo $(ARGS) $(DEMO_ARGS)

refund-demo: ## an agent refunds, by plain Celery and by Fencepost, through every crash window
	$(venv) demo
	@$(VENV)/bin/python -m examples.refund_agent.demo $(ARGS)

order-demo: ## four orders through one saga, one of them through a killed worker (ARGS='--postgres')
	$(venv) demo
	@$(VENV)/bin/python -m examples.order_saga.demo $(ARGS)

pipeline-demo: ## three days of files through a fan-out, with limits and a killed worker (ARGS='--postgres')
	$(venv) demo
	@$(VENV)/bin/python -m examples.data_pipeline.demo $(ARGS)

test: ## run all tests (ARGS='tests/unit -k fence')
	$(venv) dev
	@$(VENV)/bin/python -m pytest $(ARGS)

compose-test: ## the scenarios on containers; starts a Docker engine where none runs (root, Debian)
	$(venv) dev
	@tools/ci_docker.sh run $(VENV)/bin/python -m pytest tests/compose $(ARGS)

explore: ## every schedule of the small scenarios (ARGS='--budget 0,1' or '--seconds 20')
	$(venv) dev
	@$(VENV)/bin/python -m fencepost.testing.explore tests.exploration.scenarios $(ARGS)

explore-nightly: ## 100,000 random schedules of larger scenarios (ARGS='--seed 7')
	$(venv) dev
	@$(VENV)/bin/python -m fencepost.testing.explore tests.exploration.nightly --random 100000 $(ARGS)

chaos: ## real workers and servers under a seeded nemesis (MINUTES=20 SEED=7 ARGS='--unfenced')
	$(venv) dev
	@$(VENV)/bin/python -m tests.chaos --minutes $(or $(MINUTES),3) $(if $(SEED),--seed $(SEED)) $(ARGS)

lint: ## ruff, mypy --strict, import contracts
	$(venv) dev
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/mypy
	@$(VENV)/bin/lint-imports

bench: ## throughput beside plain Celery's chain (ARGS='--executions 1000 --database sqlite')
	$(venv) dev
	@$(VENV)/bin/python -m benchmarks.throughput $(ARGS)

format: ## let ruff format and fix
	$(venv) dev
	@$(VENV)/bin/ruff check --fix .
	@$(VENV)/bin/ruff format .

lock: ## refresh every pin in requirements/ (ARGS='--upgrade-package celery' for one only)
	@$(PYTHON) tools/venv.py lock --venv $(VENV)-lock
	@$(VENV)-lock/bin/python tools/lock.py $(if $(ARGS),$(ARGS),--upgrade)

clean: ## remove environments, caches, builds and runs
	rm -rf .venv .venv-* dist build runs .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
