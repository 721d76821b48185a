# libcore: everything but the programs' main files and the library's door. mangod, the tools, libmango and the tests link it.
noinst_LTLIBRARIES += libcore.la
# files: core/*/*.c core/*/*.h !core/cmd/* !core/lib/mango.* !core/base/hook-test.c
libcore_la_SOURCES = \
	core/api/app.h \
	core/base/arena.c \
	core/base/arena.h \
	core/base/buf.c \
	core/base/buf.h \
	core/base/cancel.c \
	core/base/cancel.h \
	core/base/clock.c \
	core/base/clock.h \
	core/base/err.c \
	core/base/err.h \
	core/base/hook-none.c \
	core/base/hook.h \
	core/base/list.h \
	core/base/log.c \
	core/base/log.h \
	core/base/map.c \
	core/base/map.h \
	core/base/mem.c \
	core/base/mem.h \
	core/base/pool.c \
	core/base/pool.h \
	core/base/rng.c \
	core/base/rng.h \
	core/base/siphash.c \
	core/base/siphash.h \
	core/base/sv.c \
	core/base/sv.h \
	core/base/utf8.c \
	core/base/utf8.h \
	core/conf/conf.h \
	core/crypto/base64.c \
	core/crypto/hash.c \
	core/crypto/hash.h \
	core/domain/agent-tools.c \
	core/domain/agent-tools.h \
	core/domain/agent.c \
	core/domain/agent.h \
	core/domain/check.c \
	core/domain/check.h \
	core/domain/content.c \
	core/domain/content.h \
	core/domain/environment.c \
	core/domain/environment.h \
	core/domain/event.c \
	core/domain/event.h \
	core/domain/id.c \
	core/domain/id.h \
	core/domain/image.c \
	core/domain/metadata.c \
	core/domain/metadata.h \
	core/domain/page.c \
	core/domain/page.h \
	core/domain/principal.h \
	core/domain/session.c \
	core/domain/session.h \
	core/domain/thread.h \
	core/events/hub.c \
	core/events/hub.h \
	core/events/notify.c \
	core/events/notify.h \
	core/http/body.c \
	core/http/body.h \
	core/http/call.c \
	core/http/conn.c \
	core/http/head.c \
	core/http/head.h \
	core/http/http.c \
	core/http/http.h \
	core/http/io.c \
	core/http/listen.c \
	core/http/listen.h \
	core/http/metrics.c \
	core/http/metrics.h \
	core/http/query.c \
	core/http/query.h \
	core/http/response.c \
	core/http/response.h \
	core/http/router.c \
	core/http/router.h \
	core/http/server.h \
	core/http/sse.c \
	core/http/stream.h \
	core/http/wheel.c \
	core/http/wheel.h \
	core/http/ws.c \
	core/json/equal.c \
	core/json/json.c \
	core/json/json.h \
	core/json/number.c \
	core/json/parse.c \
	core/json/scan.c \
	core/json/scan.h \
	core/json/write.c \
	core/json/write.h \
	core/lib/server.c \
	core/lib/server.h \
	core/model/backend.h \
	core/model/block.c \
	core/model/block.h \
	core/model/client.c \
	core/model/failure.c \
	core/model/failure.h \
	core/model/http.c \
	core/model/message.c \
	core/model/message.h \
	core/model/model.h \
	core/model/offline-plan.c \
	core/model/offline-plan.h \
	core/model/offline-thread.c \
	core/model/offline.c \
	core/model/offline.h \
	core/model/request.c \
	core/model/request.h \
	core/model/sse-parse.c \
	core/model/sse-parse.h \
	core/plugin/elf.c \
	core/plugin/elf.h \
	core/plugin/guard.c \
	core/plugin/host.c \
	core/plugin/host.h \
	core/plugin/loader.c \
	core/plugin/names.c \
	core/plugin/plugin.h \
	core/plugin/probe.c \
	core/plugin/probe.h \
	core/plugin/process-state.c \
	core/plugin/process-state.h \
	core/plugin/registry.c \
	core/plugin/registry.h \
	core/run/box.c \
	core/run/calls.c \
	core/run/clock.c \
	core/run/engine-internal.h \
	core/run/engine.c \
	core/run/engine.h \
	core/run/preview.c \
	core/run/request.c \
	core/run/response.c \
	core/run/resume.c \
	core/run/run.c \
	core/run/step.c \
	core/run/step.h \
	core/run/tool-config.c \
	core/run/tool-config.h \
	core/run/turn.c \
	core/run/turn.h \
	core/sandbox/manager.h \
	core/service/admission.c \
	core/service/admission.h \
	core/service/agent.c \
	core/service/agent.h \
	core/service/environment.c \
	core/service/environment.h \
	core/service/session.c \
	core/service/session.h \
	core/store/agent.c \
	core/store/agent.h \
	core/store/api-key.c \
	core/store/api-key.h \
	core/store/deployment.c \
	core/store/deployment.h \
	core/store/embedded.h \
	core/store/environment.c \
	core/store/environment.h \
	core/store/event-list.c \
	core/store/event-list.h \
	core/store/event-log.c \
	core/store/event-log.h \
	core/store/key-cache.c \
	core/store/list.c \
	core/store/list.h \
	core/store/migrate.c \
	core/store/migrate.h \
	core/store/node.c \
	core/store/node.h \
	core/store/pg-internal.h \
	core/store/pg.c \
	core/store/pg.h \
	core/store/pipe.c \
	core/store/res.c \
	core/store/session-state.c \
	core/store/session-state.h \
	core/store/session.c \
	core/store/session.h \
	core/store/state-dir.h \
	core/store/tool-call.c \
	core/store/tool-call.h \
	core/store/transcript.c \
	core/store/transcript.h \
	core/store/txn.c \
	core/tools/tools.h

libcore_la_LIBADD = $(PQ_LIBS) $(JANSSON_LIBS) $(CURL_LIBS) $(LWS_LIBS) $(OPENSSL_LIBS) $(LIBCONFIG_LIBS) -lpthread -lm

# The embeddable server: the same objects behind a small door; everything else is hidden.
lib_LTLIBRARIES += libmango.la
mangoinclude_HEADERS += core/lib/mango.h
libmango_la_SOURCES = core/lib/mango.c
libmango_la_LIBADD = libcore.la
libmango_la_LDFLAGS = $(AM_LDFLAGS) -version-info 0:0:0 -Wl,--version-script=$(srcdir)/core/lib/libmango.map
EXTRA_libmango_la_DEPENDENCIES = core/lib/libmango.map
EXTRA_DIST += core/lib/libmango.map
pkgconfig_DATA += core/lib/mango.pc

bin_PROGRAMS += mangod
mangod_SOURCES = core/cmd/mangod.c
mangod_LDADD = libcore.la
