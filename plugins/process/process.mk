if SANDBOX_PROCESS
plugin_LTLIBRARIES += plugins/process/process.la
pkglibexec_PROGRAMS += plugins/process/mango-process-box
endif
# files: plugins/process/*.c plugins/process/*.h
plugins_process_process_la_SOURCES = \
	plugins/process/launch.c \
	plugins/process/plugin.c \
	plugins/process/process.h \
	plugins/process/state.c \
	plugins/process/state.h \
	plugins/process/watch.c

plugins_process_process_la_CPPFLAGS = $(PLUGIN_CPPFLAGS) -DMANGO_BINDIR='"$(bindir)"'
plugins_process_process_la_LIBADD = $(HOSTBOX_LIBS)
plugins_process_process_la_LDFLAGS = $(PLUGIN_LDFLAGS)

# One for each box: small, and never instrumented.
# files: plugins/process/box/*.c plugins/process/state.c plugins/process/state.h
plugins_process_mango_process_box_SOURCES = \
	plugins/process/box/main.c \
	plugins/process/state.c \
	plugins/process/state.h

plugins_process_mango_process_box_CPPFLAGS = $(PLUGIN_CPPFLAGS)
plugins_process_mango_process_box_CFLAGS = $(BOX_COMPILE)
plugins_process_mango_process_box_LDFLAGS = $(BOX_LINK)
plugins_process_mango_process_box_LDADD = plugins/common/libinside.a
