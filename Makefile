# Everything here works on a fresh machine with Python 3.11 to 3.13, Java 17+, git and make; `make help` explains itself.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
UV := .uv/bin/uv
RUN := .venv/bin
export UV_PROJECT_ENVIRONMENT := .venv
# The machine's own package settings would leak into what is installed.
export VIRTUAL_ENV :=
# Empty means not set. If it is set, each of the hundreds of Python processes compiles its modules again.
export PYTHONDONTWRITEBYTECODE :=
WORKERS ?= 4

.PHONY: help
help: ## show this help
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  \033[1mmake %-12s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(UV):
	$(PYTHON) -m venv .uv
	.uv/bin/pip install --quiet "uv>=0.9,<1"

.venv/.ready: $(UV) Makefile pyproject.toml devstack/pyproject.toml uv.lock
	$(UV) sync --frozen --compile-bytecode
	$(RUN)/python -m tallystick_devstack.prepare
	touch $@
	@echo 'ready: type $(RUN)/tally, or first `source $(RUN)/activate`'

.PHONY: setup
setup: .venv/.ready ## install everything into .venv: packages, the Kafka broker, the schema registry, compiled decoders, archives of Java classes

.PHONY: check
check: setup ## lint, types, layers, lock file
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/mypy
	$(RUN)/lint-imports
	$(UV) lock --check
	! git grep -nE '^(<{7}|>{7}) '  # what a merge left behind

.PHONY: test
test: setup ## all checks and tests, on real servers (80 minutes on 2 slow cores)
	@command -v chromium chromium-browser > /dev/null || echo 'no Chromium: the tests that press buttons are skipped' \
	    '(apt-get install --no-install-recommends chromium)'
	$(MAKE) --no-print-directory --jobs 3 --output-sync check wheel test-protocol
	TALLYSTICK_TEST_ENDS_WITH_PARENT=1 $(RUN)/python -m pytest tests --ignore=tests/unit/format --ignore=tests/unit/protocol \
	    --ignore=tests/bench -n $(WORKERS) --dist loadfile
	# What it compares must not share the cores with other tests.
	TALLYSTICK_TEST_ENDS_WITH_PARENT=1 $(RUN)/python -m pytest tests/bench

.PHONY: test-long
test-long: setup ## the tests that are left out of `make test` because they are long: chaos, more schedules, two examples
	TALLYSTICK_TEST_ENDS_WITH_PARENT=1 $(RUN)/python -m pytest tests -m long -n $(WORKERS) --dist loadfile

.PHONY: wheel
wheel: setup ## build the wheel, install it into an empty environment, and call tally there
	rm -rf build/wheel
	$(UV) build --quiet --wheel --out-dir build/wheel .
	$(RUN)/python tests/support/wheel_files.py build/wheel/*.whl
	$(UV) venv --quiet build/wheel/env
	$(UV) pip install --quiet --python build/wheel/env/bin/python build/wheel/*.whl
	build/wheel/env/bin/tally --help > build/wheel/help.txt
	build/wheel/env/bin/tally --version

.PHONY: test-cpu
test-cpu: setup ## the tests, and a table of their CPU seconds with all servers: TESTS=tests/kafka
	rm -rf build/cpu && mkdir -p build/cpu
	TALLYSTICK_TEST_CPU=$(CURDIR)/build/cpu $(RUN)/python -m pytest -p support.cpu_table -n $(WORKERS) --dist loadfile $(or $(TESTS),tests)
	$(RUN)/python tests/support/cpu_table.py build/cpu

.PHONY: test-protocol
test-protocol: setup ## the protocol alone: branch coverage of 100 % or failure
	$(RUN)/python -m coverage run -m pytest -q tests/unit/format tests/unit/protocol
	$(RUN)/python -m coverage report --fail-under=100

.PHONY: test-unit
test-unit: setup ## the tests that need no server
	$(RUN)/python -m pytest -q tests/unit

.PHONY: fuzz
fuzz: setup ## fuzz the decoders, and keep what has a new verdict: make fuzz SECONDS=60 SEED=1 FORMAT=avro
	cd tests && ../$(RUN)/python -m support.fuzz $(FORMAT) --seconds $(or $(SECONDS),60) --seed $(or $(SEED),1)

.PHONY: explore
explore: setup ## the random explorer, longer: make explore SCHEDULES=200000 SEED=1
	$(RUN)/python tests/simulation/explore.py --schedules $(or $(SCHEDULES),200000) --seed $(or $(SEED),1)

.PHONY: orders
orders: setup ## random orders of intervals for jobs with state, against one pass over the log: ORDERS=500 SEED=0
	$(RUN)/python tests/simulation/orders.py --orders $(or $(ORDERS),500) --seed $(or $(SEED),0)

.PHONY: chaos
chaos: setup ## nemeses on the real stack, each audited: ROUNDS=n NEMESIS=name SEED=n TABLE=file KEEP=1
	$(RUN)/python tests/chaos/run.py $(if $(ROUNDS),--rounds $(ROUNDS)) $(addprefix --nemesis ,$(NEMESIS)) \
	    $(if $(SEED),--seed $(SEED)) $(if $(TABLE),--table $(TABLE)) $(if $(KEEP),--keep)

.PHONY: demo
demo: setup ## the main job on the embedded stack, real data; ONCE=1 ends by itself; EXAMPLE=ontime, SPARK=cluster
	$(RUN)/python -m examples.demo $(if $(ONCE),--once) $(if $(EXAMPLE),--example $(EXAMPLE)) $(if $(SPARK),--spark $(SPARK))

.PHONY: example
example: setup ## examples on the embedded stack, each without and with a kill -9, and checked: NAME=files (or another; all), KILL=0
	$(RUN)/python -m examples.runner $(if $(NAME),$(NAME),all) $(if $(filter 0 no,$(KILL)),--no-kill)

.PHONY: demo-metrics
demo-metrics: setup ## the demo with a StatsD listener: the sums of all counters, compared with the ledger (4 minutes)
	$(RUN)/python tests/by_hand/demo_metrics.py

.PHONY: demo-pages
demo-pages: setup ## the demo, then all pages of its lake in Chromium, compared with the ledger, and a gap filled by the button (4 minutes)
	$(RUN)/python tests/by_hand/demo_pages.py

# Of coreutils and awk alone: who runs the stack in Docker needs no Python here. An existing .env is left as it is.
.env:
	@umask 077; awk '/^[A-Z0-9_]+=$$/ { \
	    command = "head -c 48 /dev/urandom | od -An -v -tx1 | tr -d \" \\n\""; \
	    if (/FERNET/) command = "head -c 32 /dev/urandom | base64 | tr +/ -_"; \
	    command | getline value; close(command); print $$0 value; next } { print }' .env.example > $@.new
	@mv $@.new $@
	@echo 'made $@ with fresh secrets; next: docker compose up --detach --build --wait'

.PHONY: bench
bench: setup ## the whole job by tallystick and by others, every result checked (estimated 25 minutes on 2 cores); FULL=1 (hours), SEED, CONTENDERS, OUT
	$(RUN)/python -m bench.whole_job $(if $(FULL),--full) $(if $(SEED),--seed $(SEED)) $(if $(CONTENDERS),--contenders $(CONTENDERS)) \
	    $(if $(OUT),--out $(OUT))

.PHONY: bench-pictures
bench-pictures: BUNDLE ?= docs/performance/whole-job.json
bench-pictures: setup ## the page and the pictures of a published bundle: BUNDLE=docs/performance/whole-job.json
	$(UV) run --frozen --no-sync --with matplotlib==3.11.2 python -m bench.whole_job.pictures $(BUNDLE) $(dir $(BUNDLE))
	$(RUN)/python -m bench.whole_job.page $(BUNDLE) > $(basename $(BUNDLE)).md

.PHONY: bench-backfill
bench-backfill: setup ## a backfill of 48 hourly intervals by tallystick and by plain Spark, every result checked (48 minutes on 2 cores); SEED, CONTENDERS, OUT
	$(RUN)/python -m bench.whole_job.backfill $(if $(SEED),--seed $(SEED)) $(if $(CONTENDERS),--contenders $(CONTENDERS)) \
	    $(if $(OUT),--out $(OUT))

.PHONY: bench-start
bench-start: setup ## what a small run's CPU seconds are spent on: processes, loading of modules (7 minutes); SEED, OUT
	$(RUN)/python -m bench.whole_job.start $(if $(SEED),--seed $(SEED)) $(if $(OUT),--out $(OUT))

.PHONY: bench-growth
bench-growth: setup ## how the cost of a run grows: records to 50,000,000, partitions, skew, tasks (estimated an hour on 2 cores); AXIS, RECORDS_MAX, SEED, OUT
	$(RUN)/python -m bench.whole_job.growth $(if $(AXIS),--axis $(AXIS)) $(if $(RECORDS_MAX),--records-max $(RECORDS_MAX)) \
	    $(if $(SEED),--seed $(SEED)) $(if $(OUT),--out $(OUT))

.PHONY: bench-formats
bench-formats: setup ## the whole job on nested documents, real flights, and Avro with a registry, every result checked (23 minutes on 2 cores); SEED, OUT
	$(RUN)/python -m bench.whole_job.formats $(if $(SEED),--seed $(SEED)) $(if $(OUT),--out $(OUT))

.PHONY: bench-read
bench-read: setup ## CPU seconds per million records: our reader compared with confluent-kafka
	$(RUN)/python -m bench.parts.read

.PHONY: bench-decode
bench-decode: setup ## CPU time per record of each format, compared with other libraries; CONTENDERS=1 adds those that the project does not use
	$(if $(CONTENDERS),$(UV) run --frozen --no-sync --with chdb==4.4.0 --with polars-avro==0.13.0 --with ptars==0.0.25 python,$(RUN)/python) \
	    -m bench.parts.decode

.PHONY: bench-publish-memory
bench-publish-memory: setup ## memory of publishing, by the number of rows and kind of output (up to an hour)
	$(RUN)/python -m bench.parts.publish_memory

.PHONY: bench-starvation
bench-starvation: setup ## how long a commit takes while a publisher works off 10,000 intervals
	$(RUN)/python -m bench.parts.starvation

.PHONY: bench-hourly
bench-hourly: setup ## time and CPU seconds of 24 hourly runs of small intervals on a stack of its own (5 minutes)
	$(RUN)/python -m bench.parts.hourly

.PHONY: bench-commits
bench-commits: setup ## CPU time, requests and bytes of a commit, from the first to the 2,000th
	$(RUN)/python -m bench.parts.commits --commits 2000

.PHONY: bench-scale
bench-scale: setup ## cost of a plan, a commit and a status: up to 10,000 partitions, 500 topics, 30 tables, 50,000 files, ten years of hours; AXIS, OUT (JSON)
	$(RUN)/python -m bench.parts.scale $(if $(AXIS),--axis $(AXIS)) $(if $(OUT),--json $(OUT))

.PHONY: bench-compact
bench-compact: setup ## a scan before and after a compaction of 720 intervals of 8 files; each interval is then replaced (15 minutes)
	$(RUN)/python -m bench.parts.compact

.PHONY: bench-polls
bench-polls: setup ## 10,000 polls of two tables through catalogs during 200 commits, compactions and gc, each compared with the ledger (20 minutes)
	$(RUN)/python -m bench.parts.polls

.PHONY: bench-pages
bench-pages: setup ## time and bytes of the pages in Airflow, over a made lake of 10,000 intervals and 50 topics (needs Chromium)
	$(RUN)/python -m bench.parts.pages

.PHONY: bench-memory
bench-memory: setup ## memory of one read, by the size of its range
	$(RUN)/python -m bench.parts.memory

.PHONY: golden
golden: setup ## a table of what three clients write in five codecs, compared with confluent-kafka's consumer
	$(RUN)/python tests/by_hand/golden_table.py

# Not `setup`: the documentation needs Python alone, and a few packages.
.PHONY: docs
docs: $(UV) ## build the documentation as a site in build/site, after its generated pages; a broken link or anchor is an error
	PYTHONPATH=plugins $(UV) run --quiet --frozen --only-group docs python -m docs.generate
	$(UV) run --quiet --frozen --only-group docs python -m docs.generate.site
	@echo 'built build/site/index.html: open it, or `make docs-serve`'

.PHONY: docs-serve
docs-serve: docs ## build the documentation and show it on 127.0.0.1: PORT=8000
	$(PYTHON) -m http.server $(or $(PORT),8000) --bind 127.0.0.1 --directory build/site

.PHONY: format
format: setup ## rewrite the code in the house's format
	$(RUN)/ruff check --fix .
	$(RUN)/ruff format .

.PHONY: clean
clean: ## stop the local stack and remove what setup and demo made
	-[ -x $(RUN)/tally ] && $(RUN)/tally local down --state-dir .tally
	rm -rf .venv .uv .tally .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
