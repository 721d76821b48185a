# Benchmarks: `make bench` prints the table of docs/performance.md and fails below a floor; ROWS="1 2 4" selects rows. The programs
# are built by it only.
EXTRA_LTLIBRARIES = tests/bench/libclient.la
tests_bench_libclient_la_SOURCES = tests/bench/client.c tests/bench/client.h

# files: tests/bench/*.c !tests/bench/client.c = {stem}$(EXEEXT)
benchmarks = \
	tests/bench/bench-json$(EXEEXT) \
	tests/bench/epfan$(EXEEXT) \
	tests/bench/fan$(EXEEXT) \
	tests/bench/load$(EXEEXT) \
	tests/bench/local$(EXEEXT) \
	tests/bench/lwsfan$(EXEEXT) \
	tests/bench/notify$(EXEEXT) \
	tests/bench/resume$(EXEEXT) \
	tests/bench/work$(EXEEXT)

EXTRA_PROGRAMS = $(benchmarks)
CLEANFILES += $(benchmarks)
BENCH_LDADD = tests/bench/libclient.la

tests_bench_epfan_LDADD = $(BENCH_LDADD)
tests_bench_fan_LDADD = $(BENCH_LDADD)
tests_bench_load_LDADD = $(BENCH_LDADD)
tests_bench_local_LDADD = $(BENCH_LDADD) libcore.la
tests_bench_lwsfan_LDADD = $(BENCH_LDADD) $(LWS_LIBS)
tests_bench_resume_LDADD = $(BENCH_LDADD)
tests_bench_work_LDADD = $(BENCH_LDADD)
tests_bench_notify_LDADD = $(BENCH_LDADD) $(PQ_LIBS)

# ROWS: the numbers of the rows to run; all without it. OUT: a file that gets the table as Markdown. WITH: a command in front of all,
# such as `chrt -r 1`, which keeps the machine's other work away from both sides.
ROWS =
OUT =
WITH =
.PHONY: bench
bench: $(benchmarks) mangod$(EXEEXT) tests/support/fake-model$(EXEEXT) plugins/loadable
	MANGO_TEST_SRCDIR='$(abs_top_srcdir)' MANGO_TEST_BUILDDIR='$(abs_top_builddir)' PYTHONDONTWRITEBYTECODE=1 \
	$(WITH) $(srcdir)/tests/support/pg-run --fsync --private --tcp $(PYTHON3) $(srcdir)/tests/bench/run.py --rows "$(ROWS)" --out "$(OUT)"

# files: tests/bench/*.py
dist_noinst_SCRIPTS += \
	tests/bench/bench.py \
	tests/bench/container_rows.py \
	tests/bench/docker_rows.py \
	tests/bench/objects.py \
	tests/bench/remote_rows.py \
	tests/bench/rows_http.py \
	tests/bench/rows_objects.py \
	tests/bench/rows_sandbox.py \
	tests/bench/rows_server.py \
	tests/bench/rows_turn.py \
	tests/bench/run.py \
	tests/bench/worker_memory.py

# files: tests/bench/sql/*.sql
dist_noinst_DATA += \
	tests/bench/sql/full.sql \
	tests/bench/sql/list.sql \
	tests/bench/sql/read.sql \
	tests/bench/sql/schema.sql \
	tests/bench/sql/two.sql
