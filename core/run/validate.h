/* Whether a credential of a vault works: its MCP server is asked for its tools with it, and where the server refuses it, the refresh token is exchanged
 * and the server is asked once more. Nothing that the server offers is run. */
#ifndef MG_RUN_VALIDATE_H
#define MG_RUN_VALIDATE_H

#include "mcp/mcp.h"
#include "run/wallet.h"

struct mg_engine;

enum {
    MG_VALIDATIONS_MAX = 32,   /* at once, with those whose result nobody has fetched yet */
    MG_VALIDATION_KEEP_S = 60, /* a result that nobody fetches is dropped then */
    MG_VALIDATION_MS =
        2 * MG_MCP_LIST_MS + MG_TOKEN_EXCHANGE_MS, /* one at most, but for a wait for another node's exchange */
};

enum mg_verdict { MG_CREDENTIAL_UNKNOWN, MG_CREDENTIAL_VALID, MG_CREDENTIAL_INVALID };
struct mg_validation {
    enum mg_verdict verdict;
    bool can_refresh;
    struct mg_mcp_refusal probe;   /* of the step that failed last: there is one unless the verdict is VALID */
    const char *refresh;           /* how the exchange ended, in the contract's words; NULL: none was called for */
    struct mg_token_answer answer; /* of the token endpoint; status 0: none */
    int64_t at_us;
};

/* Of a request, by its ticket: what it asked for is under way, done (*ret), or was never asked for. A result is given once. */
enum mg_validation_state { MG_VALIDATION_NEW, MG_VALIDATION_RUNS, MG_VALIDATION_DONE };
enum mg_validation_state mg_validation_look(struct mg_engine *e, struct mg_sv credential, uint64_t ticket,
                                            struct mg_validation *ret);
/* done is called on a thread of the engine, which ends it before it has stopped. MG_EUNAVAIL: too many at once. MG_ECONFIG: the row cannot be opened. */
mg_rc mg_validation_start(struct mg_engine *e, const struct mg_credential_row *row, uint64_t ticket,
                          void (*done)(void *ctx, struct mg_sv credential), void *ctx, struct mg_err *err) MG_MUSTCHECK;

/* ---- for the engine ---- */
struct mg_validations;
struct mg_validations *mg_validations_new(void);
void mg_validations_cancel(struct mg_validations *v);
void mg_validations_free(struct mg_validations *v); /* none runs any more */

#endif
