/* Rows of objects: the bytes in the object store, from before they are written until after they are gone.
 *
 * Leases run on the database's clock, which is read again once a row's lock is held: what waited may have lost its lease meanwhile. */
#ifndef MG_STORE_OBJECT_H
#define MG_STORE_OBJECT_H

#include "domain/id.h"
#include "store/pg.h"

enum { MG_OBJECT_KEY = 41 /* 40 hex digits and the NUL */ };

struct mg_object_key {
    char s[MG_OBJECT_KEY];
};
static inline struct mg_sv mg_object_key_sv(const struct mg_object_key *k)
{
    return mg_sv_of(k->s);
}

/* A new row in state uploading, under a lease. */
mg_rc mg_object_insert(struct mg_pg *pg, const struct mg_object_key *key, struct mg_sv workspace, const char *kind,
                       int64_t lease_ms, struct mg_err *err) MG_MUSTCHECK;
/* Renews the leases of these uploads that still hold. *ret_held[i] tells. */
mg_rc mg_objects_renew(struct mg_pg *pg, struct mg_arena *a, const struct mg_sv *keys, size_t n, int64_t lease_ms,
                       bool *ret_held, struct mg_err *err) MG_MUSTCHECK;
/* uploading -> ready, in the transaction that makes what refers to it. MG_EFENCED: the lease is over, the bytes are somebody else's to remove. */
mg_rc mg_object_complete(struct mg_arena *a, struct mg_txn *t, const struct mg_object_key *key, int64_t size,
                         const char *sha256, struct mg_err *err) MG_MUSTCHECK;
/* The writer has ended without success: a guard that needs to outlive nothing. *ret_revision: what mg_object_forget names; 0: there is no row. */
mg_rc mg_object_give_up(struct mg_pg *pg, const struct mg_object_key *key, int64_t *ret_revision,
                        struct mg_err *err) MG_MUSTCHECK;
/* The writer has ended, but a write of its may still be carried out: the lease ends now, and its guard stays for as long as that may take. */
mg_rc mg_object_abandon(struct mg_pg *pg, const struct mg_object_key *key, struct mg_err *err);
/* Queues ready -> deleting; what referred to it is deleted in the same transaction. */
mg_rc mg_object_release(struct mg_txn *t, struct mg_sv key, struct mg_err *err) MG_MUSTCHECK;
/* The bytes are gone and no write can follow. A guard that was set anew since stays. */
mg_rc mg_object_forget(struct mg_arena *a, struct mg_pg *pg, struct mg_sv key, int64_t revision,
                       struct mg_err *err) MG_MUSTCHECK;

/* ---- reconciliation ---- */

/* Uploads whose lease is over become guards, each claimed by one node. */
mg_rc mg_objects_expire(struct mg_pg *pg, struct mg_arena *a, int limit, int *ret_n, struct mg_err *err) MG_MUSTCHECK;

struct mg_object_guard {
    struct mg_sv key;
    int64_t revision;
    bool partial; /* it was never whole */
    bool
        last; /* its writer has ended, or has been silent for longer than any write takes: with the bytes gone the row may go */
};
/* The guards that were looked at longest ago, at most limit, not within pause_ms; they count as looked at now. */
mg_rc mg_objects_guards(struct mg_pg *pg, struct mg_arena *a, int limit, int64_t pause_ms, int64_t late_ms,
                        struct mg_object_guard **ret, int *ret_n, struct mg_err *err) MG_MUSTCHECK;

/* The deployment's object store is the first that was ever used: MG_EUNAVAIL when this identity is another one. */
mg_rc mg_object_store_claim(struct mg_pg *pg, struct mg_sv identity, struct mg_err *err) MG_MUSTCHECK;
/* Whether it is, without making it so. */
mg_rc mg_object_store_is(struct mg_pg *pg, struct mg_sv identity, bool *ret, struct mg_err *err) MG_MUSTCHECK;

#endif
