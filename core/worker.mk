# The worker's side. It has no part of the server in it: what both stand on, and core/worker.
noinst_LTLIBRARIES += libworker.la
# files: core/worker/*.c core/worker/*.h !core/worker/worker.h
libworker_la_SOURCES = \
	core/worker/box.c \
	core/worker/box.h \
	core/worker/dir.c \
	core/worker/dir.h \
	core/worker/door.c \
	core/worker/event.c \
	core/worker/event.h \
	core/worker/fan.c \
	core/worker/fan.h \
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
	core/worker/memory-api.c \
	core/worker/memory-api.h \
	core/worker/memory-folder.c \
	core/worker/memory-folder.h \
	core/worker/memory-pass.c \
	core/worker/memory.c \
	core/worker/memory.h \
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
	core/worker/skills.c \
	core/worker/skills.h \
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
libworker_la_LIBADD = libground.la plugins/common/libhostbox.la plugins/common/libcommon.la $(CURL_LIBS) $(OPENSSL_LIBS) $(LIBZIP_LIBS) -lpthread -lm -ldl

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
