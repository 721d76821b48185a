if SANDBOX_DAYTONA
plugin_LTLIBRARIES += plugins/daytona/daytona.la
endif
# files: plugins/daytona/*.c plugins/daytona/*.h
plugins_daytona_daytona_la_SOURCES = \
	plugins/daytona/api.c \
	plugins/daytona/daytona.h \
	plugins/daytona/lifecycle.c \
	plugins/daytona/network.c \
	plugins/daytona/plugin.c \
	plugins/daytona/sandbox.c \
	plugins/daytona/snapshot.c \
	plugins/daytona/toolbox.c

plugins_daytona_daytona_la_CPPFLAGS = $(PLUGIN_CPPFLAGS)
plugins_daytona_daytona_la_LIBADD = $(REMOTE_LIBS)
plugins_daytona_daytona_la_LDFLAGS = $(PLUGIN_LDFLAGS)
