if SANDBOX_CUBE
plugin_LTLIBRARIES += plugins/cube/cube.la
endif
# files: plugins/cube/*.c
plugins_cube_cube_la_SOURCES = \
	plugins/cube/plugin.c

plugins_cube_cube_la_CPPFLAGS = $(PLUGIN_CPPFLAGS)
plugins_cube_cube_la_LIBADD = $(ENVD_LIBS)
plugins_cube_cube_la_LDFLAGS = $(PLUGIN_LDFLAGS)
