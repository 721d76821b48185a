/* Time zones: PostgreSQL knows them all, by the time zone data of its host, and is asked for the changes of an offset. So
 * a change of a zone's rules comes with that package, and nothing of the process's own clock settings matters. */
#ifndef MG_STORE_ZONE_H
#define MG_STORE_ZONE_H

#include "domain/cron.h"
#include "store/pg.h"

/* MG_EINVAL: there is no zone of this name. The database reads all of its zone files for it. */
mg_rc mg_zone_check(struct mg_txn *t, struct mg_sv name, struct mg_err *err) MG_MUSTCHECK;
/* Offsets of a zone that was checked, from a day before from_us until MG_CRON_DAYS after it. */
mg_rc mg_zone_load(struct mg_arena *a, struct mg_txn *t, struct mg_sv name, int64_t from_us, struct mg_zone *ret,
                   struct mg_err *err) MG_MUSTCHECK;

#endif
