if SANDBOX_DOCKER
plugin_LTLIBRARIES += plugins/docker/docker.la
pkglibexec_PROGRAMS += plugins/docker/mango-box
endif
# files: plugins/docker/*.c plugins/docker/*.h
plugins_docker_docker_la_SOURCES = \
	plugins/docker/archive.c \
	plugins/docker/archive.h \
	plugins/docker/box.c \
	plugins/docker/bundle.c \
	plugins/docker/container.c \
	plugins/docker/create.c \
	plugins/docker/cred-helper.c \
	plugins/docker/cred-helper.h \
	plugins/docker/credentials.c \
	plugins/docker/demux.c \
	plugins/docker/demux.h \
	plugins/docker/docker.h \
	plugins/docker/egress.c \
	plugins/docker/egress.h \
	plugins/docker/endpoint.c \
	plugins/docker/endpoint.h \
	plugins/docker/engine.c \
	plugins/docker/exec.c \
	plugins/docker/file.c \
	plugins/docker/image.c \
	plugins/docker/launcher.c \
	plugins/docker/launcher.h \
	plugins/docker/mux-client.c \
	plugins/docker/mux-client.h \
	plugins/docker/mux.h \
	plugins/docker/owned.c \
	plugins/docker/plain-exec.c \
	plugins/docker/plain-file.c \
	plugins/docker/plain-ready.c \
	plugins/docker/plain.c \
	plugins/docker/plain.h \
	plugins/docker/plugin.c \
	plugins/docker/proc.c \
	plugins/docker/registry.c \
	plugins/docker/registry.h \
	plugins/docker/run.c \
	plugins/docker/run.h \
	plugins/docker/snapshot.c

plugins_docker_docker_la_CPPFLAGS = $(PLUGIN_CPPFLAGS)
plugins_docker_docker_la_LIBADD = $(COMMON_LIBS)
plugins_docker_docker_la_LDFLAGS = $(PLUGIN_LDFLAGS)

# Runs inside of containers of any image: static, small, and never instrumented. What starts the
# commands is what starts them for the backend `local`.
# files: plugins/docker/box/*.c plugins/docker/box/*.h plugins/common/tar.c plugins/common/tar.h
plugins_docker_mango_box_SOURCES = \
	plugins/common/tar.c \
	plugins/common/tar.h \
	plugins/docker/box/box.h \
	plugins/docker/box/command.c \
	plugins/docker/box/file.c \
	plugins/docker/box/main.c \
	plugins/docker/box/pack.c \
	plugins/docker/box/serve.c

plugins_docker_mango_box_CPPFLAGS = $(PLUGIN_CPPFLAGS)
plugins_docker_mango_box_CFLAGS = $(BOX_COMPILE)
plugins_docker_mango_box_LDFLAGS = $(BOX_LINK)
plugins_docker_mango_box_LDADD = plugins/common/libinside.a
