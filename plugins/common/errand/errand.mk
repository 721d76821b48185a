# Put into the sandboxes of remote services by the adapters that need it (common/remote/errands.h).
if ERRAND
pkglibexec_PROGRAMS += plugins/common/errand/mango-errand
endif

# Runs in sandboxes of any image: static, small, and never instrumented.
# files: plugins/common/errand/*.c plugins/common/errand/*.h plugins/common/remote/base64.c plugins/common/remote/base64.h
plugins_common_errand_mango_errand_SOURCES = \
	plugins/common/errand/errand.h \
	plugins/common/errand/file.c \
	plugins/common/errand/main.c \
	plugins/common/errand/program.h \
	plugins/common/errand/run.c \
	plugins/common/errand/wait.c \
	plugins/common/remote/base64.c \
	plugins/common/remote/base64.h

plugins_common_errand_mango_errand_CPPFLAGS = $(PLUGIN_CPPFLAGS)
plugins_common_errand_mango_errand_CFLAGS = -std=gnu17 $(WARN_CFLAGS)
plugins_common_errand_mango_errand_LDFLAGS = -all-static -s
plugins_common_errand_mango_errand_LDADD = plugins/common/libinside.a
