# All that the author of a plugin needs.
# files: plugin-api/mango/*.h
mangoinclude_HEADERS += 

pkgconfig_DATA += plugin-api/mango-plugin.pc
