/* Structured log lines on standard error: `TIME LEVEL message key=value ...`, or one JSON object a line.
 * Thread-safe; a line is one write(2). Never give a secret as a value. */
#ifndef MG_BASE_LOG_H
#define MG_BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/sv.h"

enum mg_log_level { MG_ERROR, MG_WARN, MG_INFO, MG_DEBUG };

struct mg_field {
    const char *key; /* NULL ends a list */
    struct mg_sv str;
    int64_t num;
    bool is_num;
};

static inline struct mg_field MG_F_STR(const char *key, const char *z) {
    return (struct mg_field){.key = key, .str = mg_sv_of(z ? z : "")};
} static inline struct mg_field MG_F_SV(const char *key, struct mg_sv s) {
    return (struct mg_field){.key = key, .str = s};
} static inline struct mg_field MG_F_INT(const char *key, int64_t n) {
    return (struct mg_field){.key = key, .num = n, .is_num = true};
}

/* mg_log(MG_WARN, "lease lost", MG_F_STR("session", id), MG_F_INT("age_ms", age)); */
#ifdef __CPPCHECK__ /* it does not know __VA_OPT__ */
#define mg_log(level, msg, ...) ((void)(level), (void)(msg))
#else
#define mg_log(level, msg, ...) \
    mg_log_write((level), (msg), (const struct mg_field[]){__VA_ARGS__ __VA_OPT__(, ){.key = NULL}})
#endif

void mg_log_write(enum mg_log_level level, const char *msg, const struct mg_field *fields);
void mg_log_setup(enum mg_log_level max_level, bool json);
/* Sends lines to fn instead of standard error (libmango); NULL restores. Set before threads start. */
typedef void mg_log_sink(void *ctx, enum mg_log_level level, struct mg_sv line);
void mg_log_set_sink(mg_log_sink *fn, void *ctx);
bool mg_log_on(enum mg_log_level level);

#endif
