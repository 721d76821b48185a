if SANDBOX_LOCAL
plugin_LTLIBRARIES += plugins/local/local.la
pkglibexec_PROGRAMS += plugins/local/mango-local-runner
endif
# files: plugins/local/*.c
plugins_local_local_la_SOURCES = \
	plugins/local/plugin.c

plugins_local_local_la_CPPFLAGS = $(PLUGIN_CPPFLAGS)
plugins_local_local_la_LIBADD = $(HOSTBOX_LIBS)
plugins_local_local_la_LDFLAGS = $(PLUGIN_LDFLAGS)

# One for each sandbox, and it forks once for each command: small, and never instrumented. Static, since it is the worker's too,
# which travels to machines with another libc.
# files: plugins/local/runner/*.c
plugins_local_mango_local_runner_SOURCES = \
	plugins/local/runner/main.c

plugins_local_mango_local_runner_CPPFLAGS = $(PLUGIN_CPPFLAGS)
plugins_local_mango_local_runner_CFLAGS = $(BOX_COMPILE)
plugins_local_mango_local_runner_LDFLAGS = $(BOX_LINK)
plugins_local_mango_local_runner_LDADD = plugins/common/libinside.a
