# One entry for people and for CI. `make check` writes nothing to the source; `make fix` is its twin.
PYTHON ?= python3
TOXIPROXY := github.com/Shopify/toxiproxy/v2/cmd/server@v2.5.0
BIN := .venv/bin
PY := $(BIN)/python
SOURCES := raftlog partitions groups transactions delayed queues broker api chaos verification spark_io pyspark_raftlog pyspark_raftlog_archive bench tests
# $(call stage,NAME,COMMAND) runs a command and prints a line with its seconds.
stage = @echo "stage $(1)"; began=$$(date +%s); $(2); status=$$?; \
	echo "stage $(1): $$(($$(date +%s) - began)) s, $$(test $$status = 0 && echo passed || echo failed)"; exit $$status
# Tests with real brokers mostly wait: more of them at once than cores. Spark gives a Python process 10 s to start, and
# no setting changes that: its tests have no such neighbours, and a file's tests share a session.
BROKER_TESTS_AT_ONCE ?= 5
# The wheel is built and installed once for the stages of a run of `make`.
RUN := $(shell date +%s%N)

# Compiled modules are kept whatever the machine says, and not beside the source: the tests start thousands of processes.
export PYTHONDONTWRITEBYTECODE :=
export PYTHONPYCACHEPREFIX := $(CURDIR)/.cache/pycache

.PHONY: demo test test-with-processes test-with-seeds test-from-outside check fix bench scale planted-bugs mutants sim explore corruption abuse fuzz reliability slow soak clean

# The last act needs Spark, which needs Java.
demo: .venv/server.stamp $(if $(shell command -v java),.venv/spark.stamp)
	$(PY) -m chaos.demo

# Costs of requests are counted alone. Tests with processes wait now and then: the fixed seeds, whose time is
# virtual, run meanwhile.
test: check
	$(call stage,programs of the tests,$(MAKE) -s .cache/toxiproxy-server .cache/system.stamp .cache/kafka.stamp)
	$(call stage,tests alone,$(PY) -m pytest tests/end_to_end -m "e2e and alone" -q)
	@$(MAKE) -s -j2 test-with-processes test-with-seeds

test-with-processes:
	$(call stage,tests with real brokers,$(PY) -m pytest tests/end_to_end -m "e2e and not slow and not spark and not outside and not alone" -q -n $(BROKER_TESTS_AT_ONCE) --dist worksteal)
	@$(MAKE) -s test-from-outside KEPT_FOR=$(RUN)
	$(call stage,tests with Spark,$(PY) -m pytest tests/end_to_end/outside tests/end_to_end/spark -m "e2e and spark and not slow" -q -rs -n auto --dist loadfile --testrunuid $(RUN))
	@$(PY) -c "from tests.helpers.from_outside import remove; remove()"

# The wheel, in an environment and a folder of its own: every block of every page, but for those that it lists. Pages
# begin one by one, the longest first: no core waits long for the last one.
test-from-outside:
	@$(PY) -m tests.helpers.documented_commands
	$(call stage,from outside,$(PY) -m pytest tests/end_to_end/outside -m "e2e and not slow and not spark" -q -n 4 --dist load --maxschedchunk 1 $(if $(KEPT_FOR),--testrunuid $(KEPT_FOR)))

test-with-seeds:
	$(call stage,fixed seeds,nice -n 19 $(PY) -m verification.simulator --fixed)

check:
	$(call stage,set-up,$(MAKE) -s .venv/dev.stamp)
	$(call stage,format and lint,$(BIN)/ruff format --check --no-cache -q $(SOURCES) && $(BIN)/ruff check --no-cache -q $(SOURCES))
	$(call stage,types,$(BIN)/mypy --cache-dir=/dev/null)
	$(call stage,layers,$(BIN)/lint-imports --no-cache)
	$(call stage,tests without brokers,$(PY) -m pytest -q -n auto --dist loadfile --no-loadscope-reorder)

fix: .venv/dev.stamp
	$(BIN)/ruff check --fix -q $(SOURCES)
	$(BIN)/ruff format -q $(SOURCES)

# Every planted bug must be seen. CHANGED=main: those in files that a change touches.
planted-bugs: .venv/dev.stamp
	$(PY) -m tests.planted_bugs $(if $(CHANGED),--changed $(CHANGED))

# Small changes of functions that tests should see: those that differ from CHANGED=main, or all of PACKAGE=raftlog/core.
# SAMPLE=200 tries as many, drawn with SEED. Prints the changes that no test sees; the score is no verdict.
mutants: .venv/dev.stamp
	$(PY) -m tests.mutation $(if $(PACKAGE),--package $(PACKAGE),--changed $(or $(CHANGED),main)) $(if $(SAMPLE),--sample $(SAMPLE)) $(if $(SEED),--seed $(SEED)) $(if $(TESTS),--tests $(TESTS))

slow: .venv/dev.stamp
	$(PY) -m pytest -m slow -q

bench: .venv/bench.stamp
	$(PY) -m bench

# Metadata and controller at a size: docs/scale.md. BROKERS=100 PARTITIONS=10000.
scale: .venv/server.stamp
	$(PY) -m bench.scale $(if $(BROKERS),--brokers $(BROKERS)) $(if $(PARTITIONS),--partitions $(PARTITIONS))

# SEED=7, core:7, log:7 or http:7 runs one seed of the simulator again, SHRINK=1 cuts it down to what matters.
# The seeds that failed for an error and the fixed ones: python -m verification.simulator --fixed, as `make test` does.
sim: .venv/server.stamp
	$(PY) -m verification.simulator $(if $(SEED),--seed $(SEED),--fixed) $(if $(SHRINK),--shrink)

# Fresh seeds of the simulator for MINUTES (60), whole brokers first, from a random number on or from FIRST. What
# fails is appended to verification/simulator/failed_seeds.txt.
explore: .venv/server.stamp
	$(PY) -m verification.simulator --explore --remember $(if $(MINUTES),--minutes $(MINUTES)) $(if $(FIRST),--first $(FIRST))

# ROW=7 measures one row of reliability.json again, from a clean checkout; QUICK=1 runs slices and writes nothing.
# Row 2 takes hours, in pieces that add up until a violation: PIECE=brokers:400 adds that much.
reliability: .venv/dev.stamp
	$(PY) -m bench.reliability $(if $(ROW),--only $(ROW)) $(if $(PIECE),--piece $(PIECE)) $(if $(QUICK),--quick)

# Real clusters of three and of five brokers under faults, an hour each: row 5. QUICK=1 takes a minute each.
soak: .venv/dev.stamp .cache/toxiproxy-server
	$(PY) -m bench.reliability --only 5 $(if $(QUICK),--quick)

# Disks that rot: CASES of one replica, and a fifth as many of all three at different places.
corruption: .venv/server.stamp
	$(PY) -m verification.corruption $(if $(CASES),--cases $(CASES))

# What strangers do to open ports, against three real brokers: row 12, ten minutes. QUICK=1 writes nothing.
# SEED=7 SECONDS=600: only requests with extreme fields drawn from this seed, for so long; writes nothing.
abuse: .venv/server.stamp
	$(PY) -m $(if $(SEED),verification.abuse --seed $(SEED) --seconds $(or $(SECONDS),60),bench.reliability --only 12 $(if $(QUICK),--quick))

# One of batches, frames, requests, files; what is found is kept in .cache/fuzz and ends the run.
fuzz: .venv/fuzz.stamp
	$(PY) -m tests.fuzz $(or $(TARGET),batches) -max_total_time=$(or $(SECONDS),600) -timeout=10 -rss_limit_mb=2048

clean:
	rm -rf .venv .cache .raftlog

# The proxies of chaos runs. Without Go the tests that need them are skipped and say so.
.cache/toxiproxy-server:
	mkdir -p .cache
	if command -v go; then GOBIN=$(CURDIR)/.cache go install $(TOXIPROXY) && mv .cache/server $@; fi

# Programs of the operating system that some tests need. Only CI installs them, as root on Debian; on other machines
# tests without their program are skipped and say so.
.cache/system.stamp:
	mkdir -p .cache
	if test -n "$$CI" && test "$$(id -u)" = 0 && command -v apt-get; then \
		command -v nft && command -v ip && command -v mkfs.ext4 && command -v chromium && command -v java \
		|| { apt-get update -q && apt-get install -y -q --no-install-recommends nftables iproute2 e2fsprogs chromium openjdk-17-jre-headless; } \
		|| echo "not installed: tests that need these programs are skipped"; \
		command -v promtool || apt-get install -y -q --no-install-recommends prometheus \
		|| echo "no promtool: the test of alerts that needs it is skipped"; \
	fi
	touch $@

# A real Kafka, for tests of imports. Without Java, Maven or a network they are skipped and say so.
.cache/kafka.stamp: bench/kafka.py
	$(PY) -c "from pathlib import Path; from bench.kafka import fetch_jars; print(fetch_jars(Path('.cache/kafka').resolve()) or 'no Kafka: tests that need it are skipped')"
	touch $@

# Each stamp is one set of extras in the same virtual environment. Python compiles what is imported.
.venv/%.stamp: pyproject.toml
	test -x $(PY) || $(PYTHON) -m venv .venv
	$(PY) -m pip install --quiet --disable-pip-version-check --no-compile --editable '.[$*]'
	touch $@
