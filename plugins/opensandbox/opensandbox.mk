if SANDBOX_OPENSANDBOX
plugin_LTLIBRARIES += plugins/opensandbox/opensandbox.la
endif
# files: plugins/opensandbox/*.c plugins/opensandbox/*.h
plugins_opensandbox_opensandbox_la_SOURCES = \
	plugins/opensandbox/api.c \
	plugins/opensandbox/execd.c \
	plugins/opensandbox/lifecycle.c \
	plugins/opensandbox/opensandbox.h \
	plugins/opensandbox/plugin.c \
	plugins/opensandbox/policy.c \
	plugins/opensandbox/sandbox.c \
	plugins/opensandbox/snapshot.c

plugins_opensandbox_opensandbox_la_CPPFLAGS = $(PLUGIN_CPPFLAGS)
plugins_opensandbox_opensandbox_la_LIBADD = $(REMOTE_LIBS)
plugins_opensandbox_opensandbox_la_LDFLAGS = $(PLUGIN_LDFLAGS)
