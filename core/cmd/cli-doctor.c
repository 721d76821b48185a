#include "cmd/cli-doctor.h"

#include <stdarg.h>
#include <string.h>

#include "cmd/cli-client.h"
#include "json/write.h"

enum { TEXT_MAX = 1024 };

static const char *const WORDS[] = {"ok", "warn", "bad"};

static void say_json(const char *word, const char *check, const char *text, const char *fix)
{
    mg_auto(buf) struct mg_buf out = MG_BUF_INIT((size_t)TEXT_MAX * 16);
    struct mg_jw w = mg_jw_to(&out);

    mg_jw_obj(&w);
    mg_jw_kstrz(&w, "check", check);
    mg_jw_kstrz(&w, "status", word);
    mg_jw_kstrz(&w, "text", text);
    mg_jw_kstrz(&w, "fix", fix);
    mg_jw_obj_end(&w);
    puts(out.ptr ? out.ptr : "");
}

void mg_doctor_say(struct mg_doctor *d, enum mg_finding f, const char *check, const char *fix, const char *fmt, ...)
{
    char text[TEXT_MAX];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    d->bad += f == MG_FINDING_BAD;
    d->warned += f == MG_FINDING_WARN;
    if (!d->cli->text) {
        say_json(WORDS[f], check, text, fix);
    } else {
        static const char *const COLOUR[] = {"\033[32m", "\033[33m", "\033[31m"};
        printf("%s%-4s%s  %-10s  %s\n", d->cli->tty ? COLOUR[f] : "", WORDS[f], d->cli->tty ? "\033[0m" : "", check,
               text);
        if (fix)
            printf("      %-10s  -> %s\n", "", fix);
    }
    (void)fflush(stdout);
}

int mg_cli_doctor(struct mg_cli *c)
{
    static void (*const CHECKS[])(struct mg_doctor *) = {
        mg_doctor_state_dir, mg_doctor_database, mg_doctor_schema, mg_doctor_keys,       mg_doctor_clock,
        mg_doctor_activity,  mg_doctor_plugins,  mg_doctor_model,  mg_doctor_model_deep, mg_doctor_loop,
        mg_doctor_limits,    mg_doctor_git,      mg_doctor_server,
    };
    mg_auto(conf) struct mg_conf *conf = mg_cli_conf(c);
    struct mg_doctor d = {.cli = c, .conf = conf};

    if (!conf)
        return MG_CLI_ERROR;
    for (size_t i = 0; i < sizeof(CHECKS) / sizeof(CHECKS[0]); i++)
        CHECKS[i](&d);
    mg_pg_free(d.pg);
    if (c->text)
        printf("\n%s\n", d.bad      ? "Something must be mended."
                         : d.warned ? "It works; look at the warnings."
                                    : "All is well.");
    return d.bad ? MG_CLI_ERROR : MG_CLI_OK;
}
