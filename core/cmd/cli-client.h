/* HTTP calls to the server. */
#ifndef MG_CMD_CLI_CLIENT_H
#define MG_CMD_CLI_CLIENT_H

#include "cmd/cli.h"

struct mg_cli_url {
    bool tls;
    char host[256]; /* without brackets */
    int port;
    char prefix[256]; /* path in front of /v1, without a slash at its end */
};

/* The server's address from --url, MANGO_BASE_URL or the default. */
struct mg_sv mg_cli_base(const struct mg_cli *c);
mg_rc mg_cli_url_parse(struct mg_sv text, struct mg_cli_url *ret, struct mg_err *err) MG_MUSTCHECK;
/* From --key-file or MANGO_API_KEY; NULL after a message. */
const char *mg_cli_key(struct mg_cli *c);
/* One call; path starts with /. On success *ret (may be NULL) is the answer in c's arena. Otherwise the reason was printed and the exit status is
 * returned. */
int mg_cli_call(struct mg_cli *c, const char *method, const char *path, struct mg_sv body, const struct mg_json **ret);
/* The same without a message: status in *ret_status (0: no answer), reason in err. */
mg_rc mg_cli_try(struct mg_cli *c, const char *method, const char *path, struct mg_sv body, const struct mg_json **ret,
                 int *ret_status, struct mg_err *err) MG_MUSTCHECK;
/* An id as a part of a path: refuses what is no id. False after a message. */
bool mg_cli_id_ok(const struct mg_cli *c, const char *what, const char *id);
void mg_cli_close(struct mg_cli *c);

#endif
