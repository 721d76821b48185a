# What authors of adapters may link: one object, of which mango/helpers.h is all that is visible, in a static library.
noinst_LIBRARIES += plugins/helpers/libparts.a
# files: plugins/helpers/*.c plugins/helpers/*.h
plugins_helpers_libparts_a_SOURCES = \
	plugins/helpers/folder.c \
	plugins/helpers/helpers.h \
	plugins/helpers/program.c
plugins_helpers_libparts_a_SOURCES += \
	plugins/common/child.c \
	plugins/common/chunk.c \
	plugins/common/confine.c \
	plugins/common/host.c \
	plugins/common/hostbox/remove.c \
	plugins/common/sv.c

plugins_helpers_libparts_a_CPPFLAGS = $(PLUGIN_CPPFLAGS)
# Never instrumented: a plugin is built without what this build was configured with.
plugins_helpers_libparts_a_CFLAGS = -std=gnu17 -O2 -fPIC -fvisibility=hidden -fno-lto $(WARN_CFLAGS)

helperlibdir = $(libdir)
helperlib_DATA = plugins/helpers/libmango-plugin.a
plugins/helpers/libmango-plugin.a: plugins/helpers/libparts.a
	$(AM_V_GEN)$(LD) -r -o $@.o --whole-archive plugins/helpers/libparts.a && \
	$(OBJCOPY) -w --keep-global-symbol='mango_*' $@.o && rm -f $@ && $(AR) rcs $@ $@.o && rm -f $@.o
CLEANFILES += plugins/helpers/libmango-plugin.a
