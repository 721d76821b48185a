/* Content blocks that clients send (api-contract 4.5): what each event may hold, checked block by block. */
#ifndef MG_DOMAIN_CONTENT_H
#define MG_DOMAIN_CONTENT_H

#include "domain/check.h"

enum {
    MG_CONTENT_TEXT = 1,
    MG_CONTENT_IMAGE = 2,
    MG_CONTENT_DOCUMENT = 4,
    MG_CONTENT_SEARCH_RESULT = 8,
    MG_CONTENT_SPOKEN = 16, /* goes to the model as it is: texts must hold something, images must be whole */
};

enum { MG_CONTENT_BLOCKS_MAX = 1000 /* blocks of one event: far above any real message */ };

/* arr: the array; place: "events[0].content". allowed: MG_CONTENT_ bits. */
mg_rc mg_content_check(struct mg_arena *a, const struct mg_json *arr, const char *place, unsigned allowed,
                       struct mg_err *err) MG_MUSTCHECK;

enum {
    MG_IMAGE_BYTES_MAX = 5 * 1024 * 1024, /* decoded bytes of one image: what Messages endpoints take */
    MG_IMAGE_SIDE_MAX = 8000,             /* pixels of a side: the same */
};

/* Whether base64 data is an image of that media type with sides within the limit, so that a transcript is not poisoned by
 * one that every later request would be refused for. err names the reason without a place. */
mg_rc mg_image_check(struct mg_sv media_type, struct mg_sv base64, struct mg_err *err) MG_MUSTCHECK;
/* The same for the bytes themselves, with limits of the caller's. */
mg_rc mg_image_check_data(struct mg_sv media_type, struct mg_sv data, uint32_t max_side, size_t max_bytes,
                          struct mg_err *err) MG_MUSTCHECK;
/* The media type that the first bytes name, or an empty view; 32 bytes are enough. */
struct mg_sv mg_image_kind(struct mg_sv head);

#endif
