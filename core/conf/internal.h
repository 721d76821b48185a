/* Used inside core/conf only. */
#ifndef MG_CONF_INTERNAL_H
#define MG_CONF_INTERNAL_H

#include "base/arena.h"
#include "conf/conf.h"

struct conf_value {
    char *text;        /* malloc memory; normalised: "true", "15s" */
    char *origin;      /* malloc memory */
    int64_t number;    /* INT, DURATION in milliseconds, BOOL 0 or 1 */
    const char **list; /* STRING: its comma-separated parts, in the arena */
    bool set;          /* by anything but the default */
};

/* One setting of the file's section of a plugin. */
struct conf_plugin_value {
    struct conf_plugin_value *next;
    const char *plugin, *key, *text; /* arena memory */
    bool quoted;                     /* a string; numbers and booleans are written into JSON as they are */
};

struct mg_conf {
    struct mg_arena *arena;
    struct conf_value values[MG_OPT_COUNT];
    struct conf_plugin_value *plugins; /* in the file's order */
    char **env;                        /* a copy, NULL-terminated, wiped at the end */
    size_t n_env;
};

/* Checks text against the option's type and keeps it. Empty text is not a value and changes nothing. */
mg_rc conf_put(struct mg_conf *c, enum mg_opt o, const char *text, const char *origin, struct mg_err *err);
mg_rc conf_read_file(struct mg_conf *c, const char *path, bool may_be_missing, struct mg_err *err);
/* The same from memory; name stands for the path in messages. */
mg_rc conf_read_text(struct mg_conf *c, const char *text, const char *name, struct mg_err *err);
/* The value of a variable in the copied environment, or NULL; empty counts as unset. */
const char *conf_env(const struct mg_conf *c, const char *name);

/* The option of that name (dashes are underscores), or MG_OPT_COUNT. */
enum mg_opt conf_find(struct mg_sv name);
/* ", did you mean 'x'?" for the nearest known name, or "". */
void conf_nearest(struct mg_sv name, char out[96]);
/* "15s", "500ms": the largest unit that fits exactly. */
void conf_format_duration(int64_t ms, char out[32]);

#endif
