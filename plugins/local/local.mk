if SANDBOX_LOCAL
plugin_LTLIBRARIES += plugins/local/local.la
endif
# files: plugins/local/*.c plugins/local/*.h
plugins_local_local_la_SOURCES = 

plugins_local_local_la_LDFLAGS = $(PLUGIN_LDFLAGS)
