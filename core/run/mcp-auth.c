/* Requests to MCP servers with the session's credential. */
#include "run/mcp-work.h"

static mg_rc over_link(struct mg_run *r, struct mg_sv server, struct mg_sv url, const struct mg_token *token,
                       mg_rc (*fn)(void *ctx, struct mg_mcp *m, struct mg_err *err), void *ctx, struct mg_err *err)
{
    struct mg_mcp_link *k = mg_mcp_link_lock(r->engine->mcp, &r->session, &r->thread, server, url);
    if (!k)
        return mg_err_set(err, MG_EUNAVAIL, "this server makes no requests to hosts that agents name");
    mg_mcp_authorize(mg_mcp_link_of(k), mg_token_bearer(token));
    mg_rc rc = fn(ctx, mg_mcp_link_of(k), err);
    mg_mcp_authorize(mg_mcp_link_of(k), MG_SV(""));
    mg_mcp_link_unlock(k);
    if (rc < 0 && err)
        mg_token_scrub(token, err->text); /* a server may say back what it was told */
    return rc;
}

/* No link is locked meanwhile: token endpoints are as slow as they like. */
static mg_rc refresh(struct mg_run *r, struct mg_token *token, struct mg_err *err)
{
    mg_rc rc = mg_wallet_refresh(r->engine->opts.wallet, token, r->cancel, NULL, err);
    return rc < 0 ? mg_err_wrap(err, rc, "the credential for the server could not be refreshed") : MG_OK;
}

mg_rc mg_mcp_with_link(struct mg_run *r, struct mg_sv server, struct mg_sv url, struct mg_token *token,
                       mg_rc (*fn)(void *ctx, struct mg_mcp *m, struct mg_err *err), void *ctx, struct mg_err *err)
{
    bool refreshed = mg_token_stale(token);
    mg_rc rc = refreshed ? refresh(r, token, err) : MG_OK;
    if (rc >= 0)
        rc = over_link(r, server, url, token, fn, ctx, err);
    if (rc != MG_EAUTH || refreshed || !mg_token_can_refresh(token))
        return rc;
    rc = refresh(r, token, err);
    return rc < 0 ? rc : over_link(r, server, url, token, fn, ctx, err);
}
