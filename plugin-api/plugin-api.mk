# All that the author of a plugin needs.
# files: plugin-api/mango/*.h
mangoinclude_HEADERS += \
	plugin-api/mango/helpers.h \
	plugin-api/mango/host.h \
	plugin-api/mango/launcher.h \
	plugin-api/mango/plugin.h \
	plugin-api/mango/sandbox.h \
	plugin-api/mango/types.h

pkgconfig_DATA += plugin-api/mango-plugin.pc
