if SANDBOX_E2B
plugin_LTLIBRARIES += plugins/e2b/e2b.la
endif
# files: plugins/e2b/*.c
plugins_e2b_e2b_la_SOURCES = \
	plugins/e2b/plugin.c

plugins_e2b_e2b_la_CPPFLAGS = $(PLUGIN_CPPFLAGS)
plugins_e2b_e2b_la_LIBADD = $(ENVD_LIBS)
plugins_e2b_e2b_la_LDFLAGS = $(PLUGIN_LDFLAGS)
