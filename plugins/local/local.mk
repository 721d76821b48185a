pkglibexec_PROGRAMS =

if SANDBOX_LOCAL
plugin_LTLIBRARIES += plugins/local/local.la
pkglibexec_PROGRAMS += plugins/local/mango-local-runner
endif

# files: plugins/local/*.c plugins/local/*.h plugins/common/*.c plugins/common/*.h
plugins_local_local_la_SOURCES = 
plugins_local_local_la_CPPFLAGS = $(AM_CPPFLAGS) -I$(srcdir)/plugins -DMANGO_LIBEXECDIR='"$(pkglibexecdir)"'
plugins_local_local_la_LDFLAGS = $(PLUGIN_LDFLAGS)
plugins_local_local_la_LIBADD = -lpthread -ldl

# Starts the commands of one sandbox; forks, so it stays small and links nothing.
# files: plugins/local/runner/*.c plugins/local/runner/*.h
plugins_local_mango_local_runner_SOURCES = 
plugins_local_mango_local_runner_CPPFLAGS = $(AM_CPPFLAGS) -I$(srcdir)/plugins -I$(srcdir)/plugins/local
plugins_local_mango_local_runner_LDADD =
