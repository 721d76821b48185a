# A fuzzer for each parser of bytes from outside. With --enable-fuzzers each is a libFuzzer program, and `make fuzz` runs them all for
# FUZZ_SECONDS each; without, each replays its corpus in `make check`.
# files: tests/fuzz/fuzz-*.c = {stem}$(EXEEXT)
fuzzers = \
	tests/fuzz/fuzz-body$(EXEEXT) \
	tests/fuzz/fuzz-bundle$(EXEEXT) \
	tests/fuzz/fuzz-conf$(EXEEXT) \
	tests/fuzz/fuzz-connect$(EXEEXT) \
	tests/fuzz/fuzz-cron$(EXEEXT) \
	tests/fuzz/fuzz-egress$(EXEEXT) \
	tests/fuzz/fuzz-engine$(EXEEXT) \
	tests/fuzz/fuzz-head$(EXEEXT) \
	tests/fuzz/fuzz-image$(EXEEXT) \
	tests/fuzz/fuzz-json$(EXEEXT) \
	tests/fuzz/fuzz-mcp$(EXEEXT) \
	tests/fuzz/fuzz-model-stream$(EXEEXT) \
	tests/fuzz/fuzz-multipart$(EXEEXT) \
	tests/fuzz/fuzz-names$(EXEEXT) \
	tests/fuzz/fuzz-offline$(EXEEXT) \
	tests/fuzz/fuzz-query$(EXEEXT) \
	tests/fuzz/fuzz-resources$(EXEEXT) \
	tests/fuzz/fuzz-sse$(EXEEXT) \
	tests/fuzz/fuzz-tar$(EXEEXT) \
	tests/fuzz/fuzz-ws$(EXEEXT)

check_PROGRAMS += $(fuzzers)
noinst_HEADERS += tests/fuzz/fuzz.h

FUZZ_PLUGINS = plugins/common/libenvd.la plugins/common/libremote.la plugins/common/libcommon.la
if FUZZERS
FUZZ_LDADD = tests/support/libdocker.la $(FUZZ_PLUGINS) libcore.la $(FUZZ_LDFLAGS)
else
TESTS += $(fuzzers)
check_LTLIBRARIES += tests/fuzz/libreplay.la
tests_fuzz_libreplay_la_SOURCES = tests/fuzz/replay.c
FUZZ_LDADD = tests/fuzz/libreplay.la tests/support/libdocker.la $(FUZZ_PLUGINS) libcore.la
endif

# lines: tests/fuzz/fuzz-*.c = {id}_LDADD = $(FUZZ_LDADD)
tests_fuzz_fuzz_body_LDADD = $(FUZZ_LDADD)
tests_fuzz_fuzz_bundle_LDADD = $(FUZZ_LDADD)
tests_fuzz_fuzz_conf_LDADD = $(FUZZ_LDADD)
tests_fuzz_fuzz_connect_LDADD = $(FUZZ_LDADD)
tests_fuzz_fuzz_cron_LDADD = $(FUZZ_LDADD)
tests_fuzz_fuzz_egress_LDADD = $(FUZZ_LDADD)
tests_fuzz_fuzz_engine_LDADD = $(FUZZ_LDADD)
tests_fuzz_fuzz_head_LDADD = $(FUZZ_LDADD)
tests_fuzz_fuzz_image_LDADD = $(FUZZ_LDADD)
tests_fuzz_fuzz_json_LDADD = $(FUZZ_LDADD)
tests_fuzz_fuzz_mcp_LDADD = $(FUZZ_LDADD)
tests_fuzz_fuzz_model_stream_LDADD = $(FUZZ_LDADD)
tests_fuzz_fuzz_multipart_LDADD = $(FUZZ_LDADD)
tests_fuzz_fuzz_names_LDADD = $(FUZZ_LDADD)
tests_fuzz_fuzz_offline_LDADD = $(FUZZ_LDADD)
tests_fuzz_fuzz_query_LDADD = $(FUZZ_LDADD)
tests_fuzz_fuzz_resources_LDADD = $(FUZZ_LDADD)
tests_fuzz_fuzz_sse_LDADD = $(FUZZ_LDADD)
tests_fuzz_fuzz_tar_LDADD = $(FUZZ_LDADD)
tests_fuzz_fuzz_ws_LDADD = $(FUZZ_LDADD)

# Parsers of the adapters.
tests_fuzz_fuzz_connect_CPPFLAGS = $(AM_CPPFLAGS) -I$(srcdir)/plugins
tests_fuzz_fuzz_tar_CPPFLAGS = $(AM_CPPFLAGS) -I$(srcdir)/plugins
tests_fuzz_fuzz_engine_CPPFLAGS = $(AM_CPPFLAGS) -I$(srcdir)/plugins

# As long as the whole run of one release: make fuzz FUZZ_SECONDS=600
FUZZ_SECONDS = 60
.PHONY: fuzz
fuzz: $(fuzzers)
	$(srcdir)/tests/fuzz/run $(srcdir)/tests/fuzz/corpus $(FUZZ_SECONDS) $(fuzzers)

dist_noinst_SCRIPTS += tests/fuzz/run
EXTRA_DIST += tests/fuzz/corpus
