# Programs that measure. Built by `make bench` only.
# files: tests/bench/bench-*.c = {stem}
benchmarks = \
	tests/bench/bench-json

EXTRA_PROGRAMS = $(benchmarks)
CLEANFILES += $(benchmarks)
