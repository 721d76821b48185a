/* JSON writer over a bounded buffer. Commas and colons are the writer's; the caller nests correctly (asserted).
 * Errors stick in the buffer: look at mg_buf_ok() at the end. */
#ifndef MG_JSON_WRITE_H
#define MG_JSON_WRITE_H

#include "base/buf.h"
#include "base/sv.h"

enum { MG_JW_DEPTH = 64 };

struct mg_jw {
    struct mg_buf *out;
    uint8_t depth;
    bool need_comma[MG_JW_DEPTH];
    bool after_key;
};

static inline struct mg_jw mg_jw_to(struct mg_buf *out)
{
    return (struct mg_jw){.out = out};
}
void mg_jw_obj(struct mg_jw *w);
void mg_jw_obj_end(struct mg_jw *w);
void mg_jw_arr(struct mg_jw *w);
void mg_jw_arr_end(struct mg_jw *w);
void mg_jw_key(struct mg_jw *w, const char *key); /* a plain ASCII name of ours */
void mg_jw_key_sv(struct mg_jw *w, struct mg_sv key);
void mg_jw_str(struct mg_jw *w, struct mg_sv s); /* s is UTF-8; bad bytes become U+FFFD */
void mg_jw_strz(struct mg_jw *w, const char *z); /* NULL writes null */
void mg_jw_int(struct mg_jw *w, int64_t n);
void mg_jw_bool(struct mg_jw *w, bool b);
void mg_jw_null(struct mg_jw *w);
void mg_jw_raw(struct mg_jw *w, struct mg_sv json); /* one finished value, spliced as it is */
void mg_jw_time(struct mg_jw *w, int64_t wall_us);  /* the API's time format; INT64_MIN writes null */

/* key and value in one */
void mg_jw_kstr(struct mg_jw *w, const char *key, struct mg_sv s);
void mg_jw_kstrz(struct mg_jw *w, const char *key, const char *z);
void mg_jw_kint(struct mg_jw *w, const char *key, int64_t n);
void mg_jw_kbool(struct mg_jw *w, const char *key, bool b);
void mg_jw_knull(struct mg_jw *w, const char *key);
void mg_jw_kraw(struct mg_jw *w, const char *key, struct mg_sv json);
void mg_jw_ktime(struct mg_jw *w, const char *key, int64_t wall_us);
/* ptr NULL: null */
void mg_jw_kstr_or_null(struct mg_jw *w, const char *key, struct mg_sv s);
void mg_jw_kraw_or_null(struct mg_jw *w, const char *key, struct mg_sv json);

/* Appends the escaped characters of s without quotes; for text that is put together in pieces. */
void mg_json_escape(struct mg_buf *out, struct mg_sv s);

#endif
