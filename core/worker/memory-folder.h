/* One memory store and its folder; memory.c has the session's. */
#ifndef MG_WORKER_MEMORY_FOLDER_H
#define MG_WORKER_MEMORY_FOLDER_H

#include "base/map.h"
#include "crypto/hash.h"
#include "worker/memory-api.h"

#define MG_MEMORY_MARKER \
    ".anthropic-memory-store" /* says whose the folder is; the official worker's has the same name and content */

enum { MG_MEMORY_FILES_MAX = 8000 /* of a folder: four times what a store takes */ };

/* One path as the two sides have it. A digest is "" where there is nothing. */
struct mg_memory_file {
    char *path;                  /* relative: the memory's own without its first slash */
    char *id;                    /* of the memory; NULL: none is known */
    char base[MG_SHA256_HEX];    /* what both had when they were last the same */
    char local[MG_SHA256_HEX];   /* what the folder has */
    char remote[MG_SHA256_HEX];  /* what the store has */
    char refused[MG_SHA256_HEX]; /* what the store refuses to take; not sent again */
    char sent[MG_SHA256_HEX];    /* was sent, and no answer came: the next listing tells */
    uint64_t missing_ns;         /* since when the file is missed; 0: it is not */
};

struct mg_memory_folder {
    char *id;
    char *root;           /* absolute, as the session's tools know it */
    const char *name;     /* its last component, in root */
    int parent_fd, fd;    /* fd: the folder itself, opened anew by each pass; negative: it is not there */
    int lock_fd;          /* held as long as the folder is in use */
    char lock_name[64];   /* beside the folder */
    bool read_only, ours; /* ours: the folder was made by this worker */
    struct mg_map *by_path;
    struct mg_memory_file **files;
    unsigned n, room;
};

/* The entry of a path, a new one where there is none. NULL: there are too many. */
struct mg_memory_file *mg_memory_entry(struct mg_memory_folder *s, const char *path);
void mg_memory_forget(struct mg_memory_folder *s, bool (*gone)(const struct mg_memory_file *f));

/* Takes what was sent without an answer for the base when the store turns out to have it. */
void mg_memory_settle(struct mg_memory_file *f);

/* The folder as it is: fills `local` of every entry. *ret_marked: its marker is this store's; *ret_n: its files without the marker. */
mg_rc mg_memory_scan(struct mg_memory_folder *s, bool *ret_marked, unsigned *ret_n, struct mg_err *err) MG_MUSTCHECK;
bool mg_memory_marked(const struct mg_memory_folder *s);
/* Marker and every memory of the store, from the beginning. */
mg_rc mg_memory_download(struct mg_memory_folder *s, const struct mg_memory_api *api, struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_memory_write(struct mg_memory_folder *s, struct mg_memory_file *f, const struct mg_memory_item *item,
                      struct mg_err *err) MG_MUSTCHECK;
/* How many memories one pass may delete of so many: a folder that was wiped must not take its store along. */
unsigned mg_memory_deletes_max(unsigned n);
/* One pass; last: what is missing now is deleted. Failures are logged; MG_EUNAVAIL: another pass may do better. */
mg_rc mg_memory_sync(struct mg_memory_folder *s, const struct mg_memory_api *api, bool last);
/* New and changed files only. */
mg_rc mg_memory_flush(struct mg_memory_folder *s, const struct mg_memory_api *api);

#endif
