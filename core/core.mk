# libcore: everything but the programs' main files and the library's door. mangod, the tools, libmango and the tests link it.
noinst_LTLIBRARIES += libcore.la
# files: core/*/*.c core/*/*.h !core/cmd/* !core/lib/mango.* !core/base/hook-test.c
libcore_la_SOURCES = \
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
	core/crypto/hash.h \
	core/domain/event.h \
	core/domain/id.h \
	core/domain/principal.h \
	core/events/hub.c \
	core/events/hub.h \
	core/http/http.h \
	core/http/stream.h \
	core/json/json.h \
	core/json/write.h \
	core/model/model.h \
	core/service/admission.h \
	core/store/event-log.c \
	core/store/event-log.h \
	core/store/pg.h \
	core/store/session-state.c \
	core/store/session-state.h \
	core/tools/tools.h

libcore_la_LIBADD = $(PQ_LIBS) $(JANSSON_LIBS) $(CURL_LIBS) $(LWS_LIBS) $(OPENSSL_LIBS) $(LIBCONFIG_LIBS) -lpthread -lm
