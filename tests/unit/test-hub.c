/* The fan-out hub against a log in memory: whatever the order of publishes, losses and loads, each subscriber sees each event once and in order. */
#include "events/hub.h"

#include <stdio.h>
#include <stdlib.h>

#include "unit.h"

enum { LOG_MAX = 4000, LOADS_MAX = 256 };

struct load {
    struct mg_id session;
    int64_t after;
    int limit;
    uint64_t token;
};

/* One session's log, and the loads that the hub asked for and that were not answered yet. */
struct fixture {
    struct mg_hub *hub;
    struct mg_id session;
    int64_t head;
    int page_cap; /* events of a page that its bytes end before its count does; 0: none */
    bool gone;
    struct load loads[LOADS_MAX];
    int n_loads, total_loads;
    int wakeups, readies;
};

static struct mg_event *log_event(int64_t seq)
{
    char id[32], json[64];
    snprintf(id, sizeof(id), "sevt_%lld", (long long)seq);
    snprintf(json, sizeof(json), "{\"id\":\"%s\"}", id);
    return mg_event_new(seq, mg_sv_of(id), MG_SV("agent.message"), MG_SV(""), mg_sv_of(json));
}

static void on_wakeup(void *ctx)
{
    ((struct fixture *)ctx)->wakeups++;
}

static void on_load(void *ctx, const struct mg_id *session, int64_t after, int limit, size_t max_bytes, uint64_t token)
{
    struct fixture *f = ctx;
    (void)max_bytes;
    assert_true(f->n_loads < LOADS_MAX);
    f->loads[f->n_loads++] = (struct load){.session = *session, .after = after, .limit = limit, .token = token};
    f->total_loads++;
}

static void on_ready(void *ctx)
{
    ((struct fixture *)ctx)->readies++;
}

static void answer_loads(struct fixture *f, mg_rc rc)
{
    while (f->n_loads) {
        struct load l = f->loads[--f->n_loads];
        struct mg_event *events[512];
        int n = 0;
        int most = f->page_cap && f->page_cap < l.limit ? f->page_cap : l.limit;
        for (int64_t seq = l.after + 1; seq <= f->head && n < most && rc == MG_OK; seq++)
            events[n++] = log_event(seq);
        mg_hub_loaded(f->hub, l.token, events, n, f->gone ? MG_ENOTFOUND : rc);
        mg_hub_run(f->hub);
    }
}

static void publish(struct fixture *f, int64_t from, int64_t to)
{
    struct mg_event *events[512];
    int n = 0;
    for (int64_t seq = from; seq <= to; seq++)
        events[n++] = log_event(seq);
    mg_hub_publish(f->hub, &f->session, events, n);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    f->session = mg_id_new("sesn");
    f->hub = mg_hub_new(&(struct mg_hub_opts){.wakeup = on_wakeup, .load = on_load, .ctx = f});
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    mg_hub_run(f->hub);
    mg_hub_free(f->hub);
    free(f);
    return 0;
}

static struct mg_sub *subscribe(struct fixture *f, int64_t after)
{
    return mg_sub_new(
        f->hub, &(struct mg_sub_opts){
                    .session = f->session, .after_seq = after, .deltas_message = true, .ready = on_ready, .ctx = f});
}

/* Reads all that is there and checks that it continues behind *seq. */
static void read_all(struct fixture *f, struct mg_sub *s, int64_t *seq)
{
    bool live;
    enum mg_sub_end end;
    struct mg_event *e;
    for (;;) {
        e = mg_sub_next(s, &live, &end);
        if (!e && f->n_loads) {
            answer_loads(f, MG_OK);
            continue;
        }
        if (!e)
            return;
        assert_int_equal(e->seq, *seq + 1);
        *seq = e->seq;
        mg_event_unref(e);
    }
}

static void live_events_arrive_in_order_without_a_load_each(void **state)
{
    struct fixture *f = *state;
    struct mg_sub *s = subscribe(f, 0);
    int64_t seq = 0;
    answer_loads(f, MG_OK);
    int loads = f->total_loads;
    for (int i = 1; i <= 1000; i++) {
        publish(f, i, i);
        f->head = i;
        mg_hub_run(f->hub);
        read_all(f, s, &seq);
        assert_int_equal(seq, i);
    }
    assert_int_equal(f->total_loads, loads);
    mg_sub_free(s);
}

static void an_event_committed_before_the_subscription_is_found_by_the_first_load(void **state)
{
    struct fixture *f = *state;
    int64_t seq = 5;
    f->head = 9; /* committed by another node between the look at the cursor and the subscription */
    struct mg_sub *s = subscribe(f, 5);
    read_all(f, s, &seq);
    assert_int_equal(seq, 9);
    mg_sub_free(s);
}

static void publishes_out_of_order_are_put_right_by_the_log(void **state)
{
    struct fixture *f = *state;
    struct mg_sub *s = subscribe(f, 0);
    int64_t seq = 0;
    answer_loads(f, MG_OK);
    f->head = 3;
    publish(f, 3, 3);
    mg_hub_run(f->hub);
    read_all(f, s, &seq);
    publish(f, 1, 2);
    mg_hub_run(f->hub);
    read_all(f, s, &seq);
    assert_int_equal(seq, 3);
    mg_sub_free(s);
}

static void case_14_lost_wake_up_is_repaired_by_the_next_one(void **state)
{
    struct fixture *f = *state;
    struct mg_sub *s = subscribe(f, 0);
    int64_t seq = 0;
    answer_loads(f, MG_OK);
    f->head = 50; /* another node wrote; its notification was lost */
    mg_hub_wake(f->hub, &f->session, 50);
    mg_hub_run(f->hub);
    read_all(f, s, &seq);
    assert_int_equal(seq, 50);
    mg_sub_free(s);
}

static void case_21_slow_reader_keeps_no_events_in_memory(void **state)
{
    struct fixture *f = *state;
    struct mg_sub *slow = subscribe(f, 0), *fast = subscribe(f, 0);
    int64_t slow_seq = 0, fast_seq = 0;
    answer_loads(f, MG_OK);
    for (int i = 1; i <= 3000; i++) {
        publish(f, i, i);
        f->head = i;
        mg_hub_run(f->hub);
        read_all(f, fast, &fast_seq);
    }
    assert_int_equal(f->total_loads, 1);
    read_all(f, slow, &slow_seq); /* far behind the ring: by pages from the log */
    assert_int_equal(slow_seq, 3000);
    assert_true(f->total_loads > 10);
    mg_sub_free(slow);
    mg_sub_free(fast);
}

static void a_failed_load_is_tried_again_at_the_tick(void **state)
{
    struct fixture *f = *state;
    struct mg_sub *s = subscribe(f, 0);
    int64_t seq = 0;
    f->head = 4;
    answer_loads(f, MG_EUNAVAIL);
    bool live;
    enum mg_sub_end end;
    assert_null(mg_sub_next(s, &live, &end));
    assert_false(live);
    mg_hub_tick(f->hub);
    mg_hub_run(f->hub);
    read_all(f, s, &seq);
    assert_int_equal(seq, 4);
    mg_sub_free(s);
}

static void live_is_told_only_after_the_history(void **state)
{
    struct fixture *f = *state;
    struct mg_sub *s = subscribe(f, 0);
    bool live;
    enum mg_sub_end end;
    f->head = 2;
    assert_null(mg_sub_next(s, &live, &end));
    assert_false(live);
    answer_loads(f, MG_OK);
    mg_event_unref(mg_sub_next(s, &live, &end));
    assert_false(live);
    mg_event_unref(mg_sub_next(s, &live, &end));
    assert_null(mg_sub_next(s, &live, &end));
    assert_true(live);
    mg_sub_free(s);
}

/* A page that is full by its bytes is no end of the history, and neither is one behind which another load runs. */
static void live_waits_for_the_last_page_however_pages_end(void **state)
{
    static const int caps[] = {0, 7};
    for (int i = 0; i < 2; i++) {
        struct fixture *f = *state;
        f->page_cap = caps[i];
        f->head = 3 * MG_HUB_PAGE_EVENTS;
        struct mg_sub *s = subscribe(f, 0);
        int64_t seq = 0;
        bool live = false;
        enum mg_sub_end end;
        for (;;) {
            struct mg_event *e = mg_sub_next(s, &live, &end);
            if (live && !e)
                break;
            if (!e) {
                assert_true(f->n_loads > 0);
                struct load rest[LOADS_MAX];
                int n_rest =
                    f->n_loads - 1; /* one load at a time, so that the reader drains what is there between two */
                for (int k = 0; k < n_rest; k++)
                    rest[k] = f->loads[k + 1];
                f->n_loads = 1;
                int64_t whole = f->head;
                struct load first = f->loads[0];
                f->n_loads = 0;
                struct mg_event *events[512];
                int n = 0, most = f->page_cap ? f->page_cap : first.limit;
                for (int64_t q = first.after + 1; q <= whole && n < most; q++)
                    events[n++] = log_event(q);
                mg_hub_loaded(f->hub, first.token, events, n, MG_OK);
                mg_hub_run(f->hub);
                for (int k = 0; k < n_rest; k++)
                    f->loads[f->n_loads++] = rest[k];
                continue;
            }
            assert_int_equal(e->seq, seq + 1);
            seq = e->seq;
            mg_event_unref(e);
        }
        assert_int_equal(seq, f->head);
        mg_sub_free(s);
        f->n_loads = 0;
    }
}

static void preview(struct fixture *f, const char *type, const char *id)
{
    struct mg_event *e = mg_event_new(0, mg_sv_of(id), mg_sv_of(type), MG_SV(""), MG_SV("{}"));
    e->preview = 1;
    mg_hub_preview(f->hub, &f->session, e);
}

static void previews_come_before_their_event_and_never_without_a_start(void **state)
{
    struct fixture *f = *state;
    struct mg_sub *s = subscribe(f, 0);
    bool live;
    enum mg_sub_end end;
    answer_loads(f, MG_OK);
    preview(f, "event_delta", "sevt_1"); /* the start was before our time */
    mg_hub_run(f->hub);
    assert_null(mg_sub_next(s, &live, &end));
    preview(f, "event_start", "sevt_2");
    preview(f, "event_delta", "sevt_2");
    f->head = 1;
    publish(f, 1, 1);
    mg_hub_run(f->hub);
    const char *const want[] = {"event_start", "event_delta", "agent.message"};
    for (int i = 0; i < 3; i++) {
        struct mg_event *e = mg_sub_next(s, &live, &end);
        assert_non_null(e);
        assert_true(mg_sv_eqz(e->type, want[i]));
        mg_event_unref(e);
    }
    mg_sub_free(s);
}

static void a_flood_of_previews_is_dropped_until_the_next_start(void **state)
{
    struct fixture *f = *state;
    struct mg_sub *s = subscribe(f, 0);
    bool live;
    enum mg_sub_end end;
    answer_loads(f, MG_OK);
    preview(f, "event_start", "sevt_1");
    for (int i = 0; i < MG_HUB_SUB_PREVIEWS + 50; i++)
        preview(f, "event_delta", "sevt_1");
    mg_hub_run(f->hub);
    assert_null(mg_sub_next(s, &live, &end)); /* an incomplete text would be worse than none */
    preview(f, "event_start", "sevt_2");
    mg_hub_run(f->hub);
    struct mg_event *e = mg_sub_next(s, &live, &end);
    assert_true(e && mg_sv_eqz(e->id, "sevt_2"));
    mg_event_unref(e);
    mg_sub_free(s);
}

static void a_session_deleted_elsewhere_ends_with_its_last_event(void **state)
{
    struct fixture *f = *state;
    struct mg_sub *s = subscribe(f, 0);
    bool live;
    enum mg_sub_end end;
    answer_loads(f, MG_OK);
    f->gone = true;
    mg_hub_wake(f->hub, &f->session, 0);
    mg_hub_run(f->hub);
    answer_loads(f, MG_OK);
    struct mg_event *e = mg_sub_next(s, &live, &end);
    assert_true(e && mg_sv_eqz(e->type, "session.deleted"));
    assert_int_equal(end, 0);
    mg_event_unref(e);
    assert_null(mg_sub_next(s, &live, &end));
    assert_int_equal(end, MG_SUB_DELETED);
    mg_sub_free(s);
}

static void revoking_a_key_ends_its_streams_only(void **state)
{
    struct fixture *f = *state;
    struct mg_id key = mg_id_new("key"), other = mg_id_new("key");
    struct mg_sub_opts o = {.session = f->session, .key_id = key, .ready = on_ready, .ctx = f};
    struct mg_sub *s = mg_sub_new(f->hub, &o);
    o.key_id = other;
    struct mg_sub *t = mg_sub_new(f->hub, &o);
    bool live;
    enum mg_sub_end end;
    mg_hub_revoke(f->hub, mg_id_sv(&key));
    mg_hub_run(f->hub);
    assert_null(mg_sub_next(s, &live, &end));
    assert_int_equal(end, MG_SUB_REVOKED);
    assert_null(mg_sub_next(t, &live, &end));
    assert_int_equal(end, 0);
    mg_sub_free(s);
    mg_sub_free(t);
}

/* The answer to "who is it" is older than the subscription. */
static void a_key_that_was_revoked_before_it_subscribes_gets_nothing(void **state)
{
    struct fixture *f = *state;
    struct mg_id key = mg_id_new("key");
    struct mg_sub_opts o = {.session = f->session, .key_id = key, .ready = on_ready, .ctx = f};
    bool live;
    enum mg_sub_end end;
    mg_hub_revoke(f->hub, mg_id_sv(&key));
    mg_hub_run(f->hub);
    struct mg_sub *late = mg_sub_new(f->hub, &o);
    o.key_id = mg_id_new("key");
    struct mg_sub *other = mg_sub_new(f->hub, &o);
    assert_null(mg_sub_next(late, &live, &end));
    assert_int_equal(end, MG_SUB_REVOKED);
    assert_null(mg_sub_next(other, &live, &end));
    assert_int_equal(end, 0);
    mg_sub_free(late);
    mg_sub_free(other);
}

static void freeing_a_subscriber_with_a_load_in_flight_is_safe(void **state)
{
    struct fixture *f = *state;
    f->head = 10;
    struct mg_sub *s = subscribe(f, 0);
    mg_sub_free(s);
    answer_loads(f, MG_OK);
    assert_true(mg_hub_idle(f->hub));
}

/* Random commits by two nodes, random loss of publishes, random slow readers. */
static void case_13_every_reader_has_the_whole_log(void **state)
{
    struct fixture *f = *state;
    enum { READERS = 8 };
    struct mg_sub *subs[READERS];
    int64_t seqs[READERS] = {0};
    srand(7);
    for (int i = 0; i < READERS; i++)
        subs[i] = subscribe(f, 0);
    while (f->head < LOG_MAX) {
        int64_t n = 1 + rand() % 5;
        int how = rand() % 4;
        f->head += n;
        if (how < 2)
            publish(f, f->head - n + 1, f->head);
        else if (how == 2)
            mg_hub_wake(f->hub, &f->session, f->head);
        mg_hub_run(f->hub);
        int who = rand() % READERS;
        if (rand() % 3 == 0) { /* cut and resumed */
            mg_sub_free(subs[who]);
            subs[who] = subscribe(f, seqs[who]);
        }
        if (rand() % 2)
            answer_loads(f, rand() % 8 ? MG_OK : MG_EUNAVAIL);
        read_all(f, subs[who], &seqs[who]);
    }
    for (int i = 0; i < READERS; i++) {
        mg_hub_tick(f->hub);
        mg_hub_wake(f->hub, &f->session, f->head);
        mg_hub_run(f->hub);
        read_all(f, subs[i], &seqs[i]);
        assert_int_equal(seqs[i], f->head);
        mg_sub_free(subs[i]);
    }
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(live_events_arrive_in_order_without_a_load_each),
        T(an_event_committed_before_the_subscription_is_found_by_the_first_load),
        T(publishes_out_of_order_are_put_right_by_the_log),
        T(case_14_lost_wake_up_is_repaired_by_the_next_one),
        T(case_21_slow_reader_keeps_no_events_in_memory),
        T(a_failed_load_is_tried_again_at_the_tick),
        T(live_is_told_only_after_the_history),
        T(live_waits_for_the_last_page_however_pages_end),
        T(previews_come_before_their_event_and_never_without_a_start),
        T(a_flood_of_previews_is_dropped_until_the_next_start),
        T(a_session_deleted_elsewhere_ends_with_its_last_event),
        T(revoking_a_key_ends_its_streams_only),
        T(a_key_that_was_revoked_before_it_subscribes_gets_nothing),
        T(freeing_a_subscriber_with_a_load_in_flight_is_safe),
        T(case_13_every_reader_has_the_whole_log),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
