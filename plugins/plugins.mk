# Adapters. One folder and one NAME.so each; they link against no symbol of the core.
PLUGIN_CPPFLAGS = -D_GNU_SOURCE -DMANGO_VERSION='"$(PACKAGE_VERSION)"' -I$(srcdir)/plugin-api -I$(srcdir)/plugins
PLUGIN_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version -shared -Wl,-z,now $(PLUGIN_DEFS)
# What an adapter is linked with, by what it is made of.
COMMON_LIBS = plugins/common/libcommon.la -lpthread -ldl
HOSTBOX_LIBS = plugins/common/libhostbox.la $(COMMON_LIBS)
REMOTE_LIBS = plugins/common/libremote.la $(COMMON_LIBS)
ENVD_LIBS = plugins/common/libenvd.la $(REMOTE_LIBS)
# Programs that run beside commands: static, small, and never instrumented.
BOX_COMPILE = -std=gnu17 $(WARN_CFLAGS)
BOX_LINK = -all-static -s

# What several adapters need: no symbol of it is visible.
noinst_LTLIBRARIES += plugins/common/libcommon.la
# files: plugins/common/*.c plugins/common/*.h
plugins_common_libcommon_la_SOURCES = \
	plugins/common/brought.c \
	plugins/common/brought.h \
	plugins/common/child.c \
	plugins/common/child.h \
	plugins/common/chunk.c \
	plugins/common/chunk.h \
	plugins/common/confine.c \
	plugins/common/confine.h \
	plugins/common/files.c \
	plugins/common/files.h \
	plugins/common/host.c \
	plugins/common/host.h \
	plugins/common/json.c \
	plugins/common/json.h \
	plugins/common/live.c \
	plugins/common/live.h \
	plugins/common/parcel.c \
	plugins/common/parcel.h \
	plugins/common/relay-env.c \
	plugins/common/sv.c \
	plugins/common/sv.h \
	plugins/common/tar.c \
	plugins/common/tar.h \
	plugins/common/text.c \
	plugins/common/text.h

plugins_common_libcommon_la_CPPFLAGS = $(PLUGIN_CPPFLAGS) -DMANGO_LIBEXECDIR='"$(pkglibexecdir)"'

# Backends whose workspaces are folders of this host.
noinst_LTLIBRARIES += plugins/common/libhostbox.la
# files: plugins/common/hostbox/*.c plugins/common/hostbox/*.h
plugins_common_libhostbox_la_SOURCES = \
	plugins/common/hostbox/base.c \
	plugins/common/hostbox/box.c \
	plugins/common/hostbox/cgroup.c \
	plugins/common/hostbox/cgroup.h \
	plugins/common/hostbox/exec.c \
	plugins/common/hostbox/file.c \
	plugins/common/hostbox/folder.c \
	plugins/common/hostbox/folder.h \
	plugins/common/hostbox/hostbox.h \
	plugins/common/hostbox/path.c \
	plugins/common/hostbox/proc.c \
	plugins/common/hostbox/pump.c \
	plugins/common/hostbox/pump.h \
	plugins/common/hostbox/remove.c \
	plugins/common/hostbox/remove.h \
	plugins/common/hostbox/runner-client.c

plugins_common_libhostbox_la_CPPFLAGS = $(PLUGIN_CPPFLAGS)

# Backends that are services over HTTP.
noinst_LTLIBRARIES += plugins/common/libremote.la
# files: plugins/common/remote/*.c plugins/common/remote/*.h
plugins_common_libremote_la_SOURCES = \
	plugins/common/remote/base64.c \
	plugins/common/remote/base64.h \
	plugins/common/remote/call.c \
	plugins/common/remote/content.c \
	plugins/common/remote/content.h \
	plugins/common/remote/errand-call.c \
	plugins/common/remote/errand-call.h \
	plugins/common/remote/errand-link.c \
	plugins/common/remote/errand-link.h \
	plugins/common/remote/errands-exec.c \
	plugins/common/remote/errands-file.c \
	plugins/common/remote/errands.c \
	plugins/common/remote/errands.h \
	plugins/common/remote/rbox-args.c \
	plugins/common/remote/rbox-frames.c \
	plugins/common/remote/rbox.h \
	plugins/common/remote/remote.h \
	plugins/common/remote/settings.c \
	plugins/common/remote/websocket.c \
	plugins/common/remote/websocket.h \
	plugins/common/remote/when.c \
	plugins/common/remote/when.h

plugins_common_libremote_la_CPPFLAGS = $(PLUGIN_CPPFLAGS)

# The data plane of two of them: envd, over the Connect protocol.
noinst_LTLIBRARIES += plugins/common/libenvd.la
# files: plugins/common/envd/*.c plugins/common/envd/*.h
plugins_common_libenvd_la_SOURCES = \
	plugins/common/envd/box.c \
	plugins/common/envd/connect.c \
	plugins/common/envd/connect.h \
	plugins/common/envd/control.c \
	plugins/common/envd/data.c \
	plugins/common/envd/envd.h \
	plugins/common/envd/exec.c \
	plugins/common/envd/file.c \
	plugins/common/envd/network.c \
	plugins/common/envd/service.c \
	plugins/common/envd/setup.c \
	plugins/common/envd/start.c

plugins_common_libenvd_la_CPPFLAGS = $(PLUGIN_CPPFLAGS)

# What the programs inside of sandboxes and those that start commands have in common: static, small, and never instrumented.
noinst_LIBRARIES += plugins/common/libinside.a
# files: plugins/common/inside/*.c plugins/common/inside/*.h plugins/common/runner/*.c plugins/common/runner/*.h plugins/common/confine.c plugins/common/files.c plugins/common/parcel.c plugins/common/sv.c plugins/common/text.c
plugins_common_libinside_a_SOURCES = \
	plugins/common/confine.c \
	plugins/common/files.c \
	plugins/common/inside/inside.c \
	plugins/common/inside/inside.h \
	plugins/common/parcel.c \
	plugins/common/runner/reaper.c \
	plugins/common/runner/relay.c \
	plugins/common/runner/relay.h \
	plugins/common/runner/runner.c \
	plugins/common/runner/runner.h \
	plugins/common/runner/tree.c \
	plugins/common/runner/wire.h \
	plugins/common/sv.c \
	plugins/common/text.c

plugins_common_libinside_a_CPPFLAGS = $(PLUGIN_CPPFLAGS)
plugins_common_libinside_a_CFLAGS = $(BOX_COMPILE)

# Put into their sandboxes: static, small, and never instrumented.
pkglibexec_PROGRAMS += plugins/common/rbox/mango-rbox
# files: plugins/common/rbox/*.c plugins/common/rbox/*.h plugins/common/errand/*.c plugins/common/errand/*.h plugins/common/remote/base64.c plugins/common/remote/base64.h
plugins_common_rbox_mango_rbox_SOURCES = \
	plugins/common/errand/errand.h \
	plugins/common/errand/file.c \
	plugins/common/errand/main.c \
	plugins/common/errand/program.h \
	plugins/common/errand/run.c \
	plugins/common/errand/talk.c \
	plugins/common/errand/wait.c \
	plugins/common/rbox/file.c \
	plugins/common/rbox/log.c \
	plugins/common/rbox/main.c \
	plugins/common/rbox/rbox.h \
	plugins/common/rbox/run.c \
	plugins/common/rbox/wire.h \
	plugins/common/remote/base64.c \
	plugins/common/remote/base64.h

plugins_common_rbox_mango_rbox_CPPFLAGS = $(PLUGIN_CPPFLAGS)
plugins_common_rbox_mango_rbox_CFLAGS = $(BOX_COMPILE)
plugins_common_rbox_mango_rbox_LDFLAGS = $(BOX_LINK)
plugins_common_rbox_mango_rbox_LDADD = plugins/common/libinside.a

include plugins/helpers/helpers.mk
include plugins/cube/cube.mk
include plugins/daytona/daytona.mk
include plugins/docker/docker.mk
include plugins/e2b/e2b.mk
include plugins/local/local.mk
include plugins/process/process.mk
include plugins/opensandbox/opensandbox.mk
include plugins/srt/srt.mk

# The plugins as the loader wants them: NAME.so in one folder, their helpers beside them. For the build tree only.
all-local: plugins/loadable
plugins/loadable: $(plugin_LTLIBRARIES) $(pkglibexec_PROGRAMS)
	$(AM_V_GEN)rm -rf $@.new && mkdir -p $@.new && \
	for p in $(pkglibexec_PROGRAMS); do cp $$p $@.new/ || exit 1; done && \
	for la in $(plugin_LTLIBRARIES); do \
		name=`basename $$la .la` && cp `dirname $$la`/.libs/$$name.so $@.new/ && chmod 755 $@.new/$$name.so || exit 1; \
	done && rm -rf $@ && mv $@.new $@

clean-local: clean-plugins
.PHONY: clean-plugins
clean-plugins:
	rm -rf plugins/loadable plugins/loadable.new
