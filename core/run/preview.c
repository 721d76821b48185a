#include "run/engine-internal.h"

/* Previews of the answer that is being streamed (api-contract 5.3): each carries the id of the durable event to come. Runs on the model's thread,
 * before on_done, so nothing else touches the run's block table. */

static void preview_send(struct mg_run *r, const struct mg_id *id, const char *type, uint8_t preview, struct mg_sv json)
{
    struct mg_event *e = mg_event_new(0, mg_id_sv(id), mg_sv_of(type), mg_id_sv(&r->thread), json);
    e->preview = preview;
    mg_hub_preview(r->engine->hub, &r->session, e);
}

static void preview_start(struct mg_run *r, const struct mg_id *id, uint8_t preview)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(1024);
    (void)mg_buf_printf(&b, "{\"type\":\"event_start\",\"event\":{\"type\":\"%s\",\"id\":\"%s\"}}",
                        mg_event_type_name(preview == 1 ? MG_EV_AGENT_MESSAGE : MG_EV_AGENT_THINKING), id->s);
    preview_send(r, id, "event_start", preview, mg_buf_view(&b));
}

/* Neighbouring text blocks are one agent.message; a thinking block is an event of its own. */
static void block_start(struct mg_run *r, int i, enum mg_block_kind kind)
{
    bool joins = kind == MG_BLOCK_TEXT && i > 0 && r->block_index[i - 1] >= 0 && r->block_event[i - 1].s[0];
    if (joins) {
        r->block_event[i] = r->block_event[i - 1];
        r->block_index[i] = r->block_index[i - 1] + 1;
        return;
    }
    r->block_event[i] = mg_id_new("sevt");
    r->block_index[i] = kind == MG_BLOCK_TEXT ? 0 : -1;
    preview_start(r, &r->block_event[i], kind == MG_BLOCK_TEXT ? 1 : 2);
}

void mg_run_delta(void *ctx, int i, enum mg_block_kind kind, bool start, struct mg_sv text)
{
    struct mg_run *r = ctx;
    if (i < 0 || i >= MG_RUN_BLOCKS_MAX || (kind != MG_BLOCK_TEXT && kind != MG_BLOCK_THINKING))
        return;
    if (!r->block_event[i].s[0])
        block_start(r, i, kind);
    if (start || kind != MG_BLOCK_TEXT || text.len == 0 || mg_hub_idle(r->engine->hub))
        return;
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(MG_MODEL_LINE_MAX);
    (void)mg_buf_printf(
        &b,
        "{\"type\":\"event_delta\",\"event_id\":\"%s\",\"delta\":{\"type\":\"content_delta\",\"index\":%d,\"content\":"
        "{\"type\":\"text\",\"text\":\"%.*s\"}}}",
        r->block_event[i].s, r->block_index[i], MG_SV_ARG(text));
    if (mg_buf_ok(&b))
        preview_send(r, &r->block_event[i], "event_delta", 1, mg_buf_view(&b));
}
