/* doctor: checks one after the other; each finding says what is so, and how to mend it. */
#ifndef MG_CMD_CLI_DOCTOR_H
#define MG_CMD_CLI_DOCTOR_H

#include "cmd/cli-db.h"

enum mg_finding { MG_FINDING_OK, MG_FINDING_WARN, MG_FINDING_BAD };

struct mg_doctor {
    struct mg_cli *cli;
    const struct mg_conf *conf;
    struct mg_pg *pg;   /* NULL: no database is reached */
    const char *models; /* the endpoint's answer to GET /v1/models, or NULL */
    unsigned bad, warned;
};

/* fix: NULL with MG_FINDING_OK. */
void mg_doctor_say(struct mg_doctor *d, enum mg_finding f, const char *check, const char *fix, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/* cli-doctor-db.c */
void mg_doctor_state_dir(struct mg_doctor *d);
void mg_doctor_database(struct mg_doctor *d); /* sets d->pg */
void mg_doctor_schema(struct mg_doctor *d);
void mg_doctor_keys(struct mg_doctor *d);
void mg_doctor_clock(struct mg_doctor *d);
void mg_doctor_activity(struct mg_doctor *d);
/* cli-doctor-host.c */
void mg_doctor_limits(struct mg_doctor *d);
void mg_doctor_loop(struct mg_doctor *d);
void mg_doctor_git(struct mg_doctor *d);
void mg_doctor_plugins(struct mg_doctor *d);
void mg_doctor_model(struct mg_doctor *d);
void mg_doctor_server(struct mg_doctor *d);
/* cli-doctor-model.c: with --model alone */
void mg_doctor_model_deep(struct mg_doctor *d);

#endif
