#include "common/chunk.h"

#include <string.h>

/* Length of the character that a lead byte begins; 1 for a byte that begins none. */
static unsigned char_len(unsigned char lead)
{
    if (lead >= 0xC2 && lead <= 0xDF)
        return 2;
    if (lead >= 0xE0 && lead <= 0xEF)
        return 3;
    return lead >= 0xF0 && lead <= 0xF4 ? 4 : 1;
}

static bool is_continuation(char c)
{
    return ((unsigned char)c & 0xC0) == 0x80;
}

/* How many of the last bytes of [p, p + n) begin a character that goes on behind them; 0 to 3. */
static unsigned open_tail(const char *p, uint64_t n)
{
    for (unsigned back = 1; back <= 3 && back <= n; back++) {
        char c = p[n - back];
        if (is_continuation(c))
            continue;
        return char_len((unsigned char)c) > back ? back : 0;
    }
    return 0;
}

static void give(struct chunk *c, const char *p, uint64_t n)
{
    if (c->stopped || n == 0)
        return;
    uint64_t room = c->max ? c->max - c->given : n;
    if (n > room) {
        n = room;
        while (n > 0 && is_continuation(p[n])) /* p[n] is there: n was larger */
            n--;
        if (n > 0)
            (void)c->sink(c->ctx, c->stream, p, n);
        c->given += n;
        c->stopped = true;
        return;
    }
    c->given += n;
    if (c->sink(c->ctx, c->stream, p, n) != 0)
        c->stopped = true;
}

void chunk_feed(struct chunk *c, const char *p, uint64_t n)
{
    c->seen += n;
    if (c->stopped)
        return;
    while (c->n_carry > 0 && n > 0) {
        if (!is_continuation(*p)) { /* what was carried is no character */
            give(c, c->carry, c->n_carry);
            c->n_carry = 0;
            break;
        }
        c->carry[c->n_carry++] = *p++;
        n--;
        if (c->n_carry < char_len((unsigned char)c->carry[0]))
            continue;
        give(c, c->carry, c->n_carry);
        c->n_carry = 0;
    }
    if (n == 0)
        return;
    unsigned tail = open_tail(p, n);
    give(c, p, n - tail);
    memcpy(c->carry, p + n - tail, tail);
    c->n_carry = (uint8_t)tail;
}

void chunk_end(struct chunk *c)
{
    give(c, c->carry, c->n_carry);
    c->n_carry = 0;
}
