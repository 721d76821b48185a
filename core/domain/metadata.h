/* Metadata maps: at most 16 pairs of short strings, patched key by key. */
#ifndef MG_DOMAIN_METADATA_H
#define MG_DOMAIN_METADATA_H

#include "domain/check.h"

enum { MG_META_PAIRS_MAX = 16, MG_META_KEY_MAX = 64 /* characters */, MG_META_VALUE_MAX = 512 /* characters */ };

/* base: the stored object's text ("{}" at creation). patch: NULL or null changes nothing. null deletes a key, at creation it is
 * refused (create = true); "" deletes too where empty_deletes. code: error_code of refusals, or NULL. *ret is arena memory. */
struct mg_meta_rules {
    bool create, empty_deletes;
    const char *code;
};
mg_rc mg_metadata_patch(struct mg_arena *a, struct mg_sv base, const struct mg_json *patch,
                        const struct mg_meta_rules *rules, struct mg_sv *ret, struct mg_err *err) MG_MUSTCHECK;

#endif
