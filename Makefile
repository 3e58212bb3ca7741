# One entry for people and for CI. `make check` writes nothing to the source; `make fix` is its twin.
PYTHON ?= python3
TOXIPROXY := github.com/Shopify/toxiproxy/v2/cmd/server@v2.5.0
BIN := .venv/bin
PY := $(BIN)/python
SOURCES := raftlog partitions groups transactions delayed api chaos spark_io pyspark_raftlog pyspark_raftlog_archive bench tests
# Tests in which no real time passes: the load of their neighbours cannot fail them, and they are never repeated.
UNTIMED := tests/conformance tests/corruption tests/paper tests/project tests/properties tests/simulation \
	$(addprefix tests/unit/,assignors core records storage wire)
# The other tests have real deadlines, and a machine that others share can stop for a second: what fails is
# run once more, and the summary names it.
ONCE_MORE := --reruns 1 -rR

# Compiled modules are kept whatever the machine says, and not beside the source: the tests start thousands of processes.
export PYTHONDONTWRITEBYTECODE :=
export PYTHONPYCACHEPREFIX := $(CURDIR)/.cache/pycache

.PHONY: demo test check fix bench scale planted-bugs mutants sim corruption abuse fuzz reliability slow soak clean

# The last act needs Spark, which needs Java.
demo: .venv/server.stamp $(if $(shell command -v java),.venv/spark.stamp)
	$(PY) -m chaos.demo

# Real brokers mostly wait: the search for planted bugs takes what they leave of the machine.
test: check .cache/toxiproxy-server .cache/system.stamp
	nice -n 19 $(PY) -m tests.simulation.mutants --check > .cache/planted-bugs.log 2>&1 & search=$$!; \
	$(PY) -m pytest -m "e2e and not slow" -q -n auto --dist loadfile $(ONCE_MORE) --only-rerun "not within"; \
	status=$$?; wait $$search || status=1; tail -n 40 .cache/planted-bugs.log; exit $$status
	$(PY) -m chaos.simulator --seeds 5000 --minutes 2

check: .venv/dev.stamp
	$(BIN)/ruff format --check --no-cache -q $(SOURCES)
	$(BIN)/ruff check --no-cache -q $(SOURCES)
	$(BIN)/mypy --cache-dir=/dev/null
	$(BIN)/lint-imports --no-cache
	$(PY) -m pytest -q -n auto $(UNTIMED)
	$(PY) -m pytest -q -n auto $(UNTIMED:%=--ignore=%) $(ONCE_MORE)

fix: .venv/dev.stamp
	$(BIN)/ruff check --fix -q $(SOURCES)
	$(BIN)/ruff format -q $(SOURCES)

# Every planted bug must be seen; `make test` looks for them, too.
planted-bugs: .venv/dev.stamp
	$(PY) -m tests.simulation.mutants --check

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

# Every seed that ever failed, then SEEDS new ones (5,000: five minutes on two cores); they follow from the
# commit, or begin at FIRST. What fails is appended to chaos/simulator/failed_seeds.txt. SEED=7, core:7, log:7
# or http:7 replays one run, SHRINK=1 cuts it down to what matters.
sim: .venv/server.stamp
	$(PY) -m chaos.simulator --remember $(if $(SEED),--seed $(SEED)) $(if $(SHRINK),--shrink) $(if $(SEEDS),--seeds $(SEEDS)) $(if $(FIRST),--first $(FIRST))

# ROW=7 measures one row of reliability.json again, from a clean checkout; QUICK=1 runs slices and writes nothing.
# Row 2 takes hours, in pieces that add up until a violation: PIECE=brokers:400 adds that much.
reliability: .venv/dev.stamp
	$(PY) -m bench.reliability $(if $(ROW),--only $(ROW)) $(if $(PIECE),--piece $(PIECE)) $(if $(QUICK),--quick)

# Real clusters of three and of five brokers under faults, an hour each: row 5. QUICK=1 takes a minute each.
soak: .venv/dev.stamp .cache/toxiproxy-server
	$(PY) -m bench.reliability --only 5 $(if $(QUICK),--quick)

# Disks that rot: CASES of one replica, and a fifth as many of all three at different places.
corruption: .venv/server.stamp
	$(PY) -m chaos.corruption $(if $(CASES),--cases $(CASES))

# What strangers do to open ports, against three real brokers: row 12, ten minutes. QUICK=1 writes nothing.
abuse: .venv/server.stamp
	$(PY) -m bench.reliability --only 12 $(if $(QUICK),--quick)

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
	fi
	touch $@

# Each stamp is one set of extras in the same virtual environment.
.venv/%.stamp: pyproject.toml
	test -x $(PY) || $(PYTHON) -m venv .venv
	$(PY) -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	touch $@
