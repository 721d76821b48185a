# Programs that measure. Built by `make bench` only.
# files: tests/bench/bench-*.c = {stem}
benchmarks =

EXTRA_PROGRAMS = $(benchmarks)
CLEANFILES += $(benchmarks)
