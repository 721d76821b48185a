# The worker's side. It has no part of the server in it: the pieces below core/store, the tools, and core/worker.
noinst_LTLIBRARIES += libworker.la
# files: core/base/*.c core/base/*.h core/json/*.c core/json/*.h core/crypto/*.c core/crypto/*.h core/net/*.c core/net/*.h core/domain/check.c core/domain/check.h core/domain/id.c core/domain/id.h core/domain/image.c core/domain/image.h core/plugin/*.c core/plugin/*.h core/sandbox/direct.h core/sandbox/handle.c core/sandbox/helper.c core/sandbox/helper.h core/sandbox/ops.h core/tools/*.c core/tools/*.h core/worker/*.c core/worker/*.h !core/base/hook-test.c !core/worker/worker.h
libworker_la_SOURCES = \
	core/base/arena.c \
	core/base/arena.h \
	core/base/buf.c \
	core/base/buf.h \
	core/base/cancel.c \
	core/base/cancel.h \
	core/base/clock.c \
	core/base/clock.h \
	core/base/err.c \
	core/base/err.h \
	core/base/hook-none.c \
	core/base/hook.h \
	core/base/list.h \
	core/base/log.c \
	core/base/log.h \
	core/base/map.c \
	core/base/map.h \
	core/base/mem.c \
	core/base/mem.h \
	core/base/pool.c \
	core/base/pool.h \
	core/base/rng.c \
	core/base/rng.h \
	core/base/siphash.c \
	core/base/siphash.h \
	core/base/sv.c \
	core/base/sv.h \
	core/base/thread.c \
	core/base/thread.h \
	core/base/utf8.c \
	core/base/utf8.h \
	core/crypto/base64.c \
	core/crypto/hash.c \
	core/crypto/hash.h \
	core/crypto/seal.c \
	core/crypto/seal.h \
	core/domain/check.c \
	core/domain/check.h \
	core/domain/id.c \
	core/domain/id.h \
	core/domain/image.c \
	core/json/equal.c \
	core/json/json.c \
	core/json/json.h \
	core/json/number.c \
	core/json/parse.c \
	core/json/scan.c \
	core/json/scan.h \
	core/json/write.c \
	core/json/write.h \
	core/net/address.c \
	core/net/address.h \
	core/net/call.c \
	core/net/conn.c \
	core/net/conn.h \
	core/net/exchange.c \
	core/net/exchange.h \
	core/net/loop.c \
	core/net/loop.h \
	core/net/resolve.c \
	core/net/resolve.h \
	core/net/retry-after.c \
	core/net/retry-after.h \
	core/net/sse-parse.c \
	core/net/sse-parse.h \
	core/net/transfer.c \
	core/net/transfer.h \
	core/net/upgrade.c \
	core/net/upgrade.h \
	core/plugin/conn.c \
	core/plugin/counters.c \
	core/plugin/counters.h \
	core/plugin/elf.c \
	core/plugin/elf.h \
	core/plugin/guard.c \
	core/plugin/host.c \
	core/plugin/host.h \
	core/plugin/http.c \
	core/plugin/loader.c \
	core/plugin/names.c \
	core/plugin/net-internal.h \
	core/plugin/net.h \
	core/plugin/plugin.h \
	core/plugin/probe.c \
	core/plugin/probe.h \
	core/plugin/process-state.c \
	core/plugin/process-state.h \
	core/plugin/registry.c \
	core/plugin/registry.h \
	core/sandbox/direct.h \
	core/sandbox/handle.c \
	core/sandbox/helper.c \
	core/sandbox/helper.h \
	core/sandbox/ops.h \
	core/tools/bash.c \
	core/tools/definition.c \
	core/tools/edit.c \
	core/tools/file.c \
	core/tools/file.h \
	core/tools/glob.c \
	core/tools/grep.c \
	core/tools/internal.h \
	core/tools/keep.c \
	core/tools/keep.h \
	core/tools/marker.c \
	core/tools/marker.h \
	core/tools/names.c \
	core/tools/names.h \
	core/tools/one-shot.c \
	core/tools/one-shot.h \
	core/tools/output.c \
	core/tools/output.h \
	core/tools/pattern.c \
	core/tools/pattern.h \
	core/tools/read.c \
	core/tools/regex.c \
	core/tools/regex.h \
	core/tools/result.c \
	core/tools/result.h \
	core/tools/search.c \
	core/tools/search.h \
	core/tools/shell.c \
	core/tools/shell.h \
	core/tools/tools.c \
	core/tools/tools.h \
	core/tools/write.c \
	core/worker/box.c \
	core/worker/box.h \
	core/worker/door.c \
	core/worker/event.c \
	core/worker/event.h \
	core/worker/history.c \
	core/worker/history.h \
	core/worker/item.c \
	core/worker/item.h \
	core/worker/job.c \
	core/worker/job.h \
	core/worker/lease.c \
	core/worker/lease.h \
	core/worker/ledger.c \
	core/worker/ledger.h \
	core/worker/poll.c \
	core/worker/poll.h \
	core/worker/remote.c \
	core/worker/remote.h \
	core/worker/result.c \
	core/worker/result.h \
	core/worker/retry.c \
	core/worker/retry.h \
	core/worker/runner.c \
	core/worker/runner.h \
	core/worker/serve.c \
	core/worker/serve.h \
	core/worker/stream.c \
	core/worker/stream.h \
	core/worker/supervise.c \
	core/worker/supervise.h \
	core/worker/tether.c \
	core/worker/tether.h \
	core/worker/tool-env.c \
	core/worker/tool-env.h \
	core/worker/toolbox.c \
	core/worker/toolbox.h \
	core/worker/tools.h \
	core/worker/workspace.c

# The tools run in a folder of the machine: what the backends of one host share does it.
libworker_la_LIBADD = plugins/common/libhostbox.la plugins/common/libcommon.la $(CURL_LIBS) $(OPENSSL_LIBS) -lpthread -lm -ldl

# The worker as a library: the same objects behind a small door; everything else is hidden.
lib_LTLIBRARIES += libmango-worker.la
mangoinclude_HEADERS += core/worker/worker.h
libmango_worker_la_SOURCES =
libmango_worker_la_LIBADD = libworker.la
libmango_worker_la_LDFLAGS = $(AM_LDFLAGS) -version-info 0:0:0 -Wl,--version-script=$(srcdir)/core/worker/libmango-worker.map
EXTRA_libmango_worker_la_DEPENDENCIES = core/worker/libmango-worker.map
EXTRA_DIST += core/worker/libmango-worker.map
pkgconfig_DATA += core/worker/mango-worker.pc

# mango-worker: one of the three programs that people start.
bin_PROGRAMS += mango-worker
# files: core/cmd/mango-worker.c core/cmd/worker-*.c core/cmd/worker-*.h
mango_worker_SOURCES = \
	core/cmd/mango-worker.c \
	core/cmd/worker-args.c \
	core/cmd/worker-args.h \
	core/cmd/worker-common.c \
	core/cmd/worker-common.h \
	core/cmd/worker-on-work.c \
	core/cmd/worker-on-work.h \
	core/cmd/worker-poll.c \
	core/cmd/worker-run.c \
	core/cmd/worker-supervise.c

mango_worker_LDADD = libworker.la

# The worker with its own loader and libraries, for images with another libc or with none: not part of `all`.
RUNNER_BUNDLE = mango-worker-bundle.tar.gz
EXTRA_DIST += core/worker/runner-bundle
CLEANFILES += $(RUNNER_BUNDLE)
.PHONY: runner-bundle install-runner-bundle
runner-bundle: $(RUNNER_BUNDLE)
$(RUNNER_BUNDLE): mango-worker$(EXEEXT) plugins/local/mango-local-runner$(EXEEXT) core/worker/runner-bundle
	$(AM_V_GEN)$(srcdir)/core/worker/runner-bundle mango-worker$(EXEEXT) plugins/local/mango-local-runner$(EXEEXT) $@

# Where the launcher `docker` finds it.
install-runner-bundle: $(RUNNER_BUNDLE)
	$(MKDIR_P) '$(DESTDIR)$(pkglibexecdir)' && $(INSTALL_DATA) $(RUNNER_BUNDLE) '$(DESTDIR)$(pkglibexecdir)/$(RUNNER_BUNDLE)'
