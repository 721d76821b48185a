/* Files as content: a block of a user.message, or a rubric, that names a file instead of holding its bytes (api-contract 4.5). Pure. */
#ifndef MG_DOMAIN_CONTENT_FILE_H
#define MG_DOMAIN_CONTENT_FILE_H

#include "domain/content.h"

enum {
    MG_CONTENT_PDF_MAX = 20 * 1024 * 1024, /* bytes of a PDF: 27 MB in base64, where Messages endpoints take 32 */
    MG_CONTENT_TEXT_MAX = 4 * 1024 * 1024, /* bytes of a text: more than the largest windows hold */
    MG_RUBRIC_CHARS_MAX = 262144,          /* characters of a rubric: semantics OU4 */
    MG_CONTENT_RUBRIC_MAX = 4 * MG_RUBRIC_CHARS_MAX, /* bytes of a rubric's file */
    MG_CONTENT_FILES_BYTES = 24 * 1024 * 1024,       /* bytes of all files of one POST, and of one model request */
};

enum mg_content_kind { MG_KIND_IMAGE, MG_KIND_PDF, MG_KIND_TEXT, MG_KIND_RUBRIC };

/* Where a block's file goes: what the caller knows of it. */
enum mg_content_place { MG_PLACE_NONE, MG_PLACE_IMAGE, MG_PLACE_DOCUMENT, MG_PLACE_RUBRIC };

/* Whether the block's source names a file, and which. */
enum mg_content_place mg_content_file_of(struct mg_arena *a, const struct mg_json *block, struct mg_sv *ret_id);
/* Whether a file of this media type and size may go there, by what its row says. MG_EINVAL without a place. */
mg_rc mg_content_file_kind(enum mg_content_place place, struct mg_sv mime, int64_t size, enum mg_content_kind *ret,
                           struct mg_err *err) MG_MUSTCHECK;
/* The same by its bytes: an image is one and whole, a text is UTF-8. */
mg_rc mg_content_file_check(enum mg_content_kind kind, struct mg_sv mime, struct mg_sv data,
                            struct mg_err *err) MG_MUSTCHECK;
/* A media type without its parameters. */
struct mg_sv mg_media_type(struct mg_sv mime);

#endif
