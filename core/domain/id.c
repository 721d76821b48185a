/* Identifiers.
 *
 * Concurrency: the last id is guarded by lock. Within a millisecond, or while the clock stands still or goes back, the
 * random part of the last id is raised by a random step: ids made by one process always ascend, yet stay
 * unguessable. */
#include "domain/id.h"

#include <pthread.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/rng.h"

enum { ID_DIGITS = 26, ID_RANDOM_BITS = 80 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned __int128 last; /* 48 bits of milliseconds, 80 random bits */

static unsigned __int128 next_value(void)
{
    struct {
        uint64_t low;
        uint32_t step;
        uint16_t high;
    } r;
    uint64_t now_ms = (uint64_t)(mg_wall_us() / 1000);

    mg_rng_bytes(&r, sizeof(r));
    (void)pthread_mutex_lock(&lock);
    if (now_ms > (uint64_t)(last >> ID_RANDOM_BITS))
        last = (unsigned __int128)now_ms << ID_RANDOM_BITS | (unsigned __int128)r.high << 64 | r.low;
    else
        last += (unsigned __int128)r.step + 1;
    unsigned __int128 v = last;
    (void)pthread_mutex_unlock(&lock);
    return v;
}

struct mg_id mg_id_new(const char *prefix)
{
    static const char crockford[] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    char digits[ID_DIGITS + 1];
    struct mg_id id;
    unsigned __int128 v = next_value();

    for (int i = ID_DIGITS - 1; i >= 0; i--) {
        digits[i] = crockford[(unsigned)(v & 31)];
        v >>= 5;
    }
    digits[ID_DIGITS] = '\0';
    (void)snprintf(id.s, sizeof(id.s), "%.20s_%s", prefix, digits);
    return id;
}

bool mg_id_from(struct mg_sv s, struct mg_id *ret)
{
    if (!s.len || s.len >= MG_ID_MAX)
        return false;
    for (size_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];
        bool fits = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
        if (!fits)
            return false;
    }
    memcpy(ret->s, s.ptr, s.len);
    ret->s[s.len] = '\0';
    return true;
}
