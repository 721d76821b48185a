if SANDBOX_SRT
plugin_LTLIBRARIES += plugins/srt/srt.la
pkglibexec_PROGRAMS += plugins/srt/mango-srt-runner
endif
# files: plugins/srt/*.c plugins/srt/*.h
plugins_srt_srt_la_SOURCES = \
	plugins/srt/check.c \
	plugins/srt/limits.c \
	plugins/srt/network.c \
	plugins/srt/plugin.c \
	plugins/srt/policy.c \
	plugins/srt/root.c \
	plugins/srt/runtime.c \
	plugins/srt/srt.h

plugins_srt_srt_la_CPPFLAGS = $(PLUGIN_CPPFLAGS)
plugins_srt_srt_la_LIBADD = $(HOSTBOX_LIBS)
plugins_srt_srt_la_LDFLAGS = $(PLUGIN_LDFLAGS)

# Process 1 of a sandbox, whatever its root is: static, small, and never instrumented.
# files: plugins/srt/runner/*.c plugins/srt/runner/*.h
plugins_srt_mango_srt_runner_SOURCES = \
	plugins/srt/runner/filter.c \
	plugins/srt/runner/filter.h \
	plugins/srt/runner/main.c \
	plugins/srt/runner/outside.c \
	plugins/srt/runner/outside.h

plugins_srt_mango_srt_runner_CPPFLAGS = $(PLUGIN_CPPFLAGS)
plugins_srt_mango_srt_runner_CFLAGS = $(BOX_COMPILE)
plugins_srt_mango_srt_runner_LDFLAGS = $(BOX_LINK)
plugins_srt_mango_srt_runner_LDADD = plugins/common/libinside.a
