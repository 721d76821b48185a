/* What is done about one memory when a copy of its store in files meets the store again: the table of contract 8.2, for the server's mounts in
 * sandboxes and for the worker's. Pure. */
#ifndef MG_DOMAIN_MEMORY_SYNC_H
#define MG_DOMAIN_MEMORY_SYNC_H

#include <stdbool.h>

#include "base/sv.h"

/* The SHA-256 (hex) of one path's text at each side; len 0: there is none. */
struct mg_memory_sides {
    struct mg_sv local; /* the file as it is now; of a file that no memory can be, any text that is no hash */
    struct mg_sv base;  /* what both sides had when they last met */
    struct mg_sv head;  /* the memory as it is now */
    bool read_only;     /* nothing of this side goes to the store */
    bool unsure;        /* a missing file may only be hidden: it is no deletion yet */
};

enum mg_memory_act {
    MG_MEMORY_KEEP,   /* both have what they had, or only the file's owner knows of it */
    MG_MEMORY_ADOPT,  /* both have the same new text: note it as the base */
    MG_MEMORY_FORGET, /* both have none any more: drop the base */
    MG_MEMORY_CREATE, /* the store gets a new memory */
    MG_MEMORY_UPDATE, /* the store gets the file's text; precondition: the base, which is the head */
    MG_MEMORY_DELETE, /* the store loses the memory; precondition: the base, which is the head */
    MG_MEMORY_PULL,   /* the file gets the head's text */
    MG_MEMORY_REMOVE, /* the file goes */
};

struct mg_memory_decision {
    enum mg_memory_act act;
    bool lost; /* what was done to the file does not reach the store: whoever did it is told */
};
struct mg_memory_decision mg_memory_decide(const struct mg_memory_sides *x);

#endif
