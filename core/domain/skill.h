/* Skills: the rules of a bundle (api-contract 2.9, 3.8, 8.1), whatever way its files came. Pure, but for what the database knows of Unicode. */
#ifndef MG_DOMAIN_SKILL_H
#define MG_DOMAIN_SKILL_H

#include "domain/check.h"

enum {
    MG_SKILL_BYTES_MAX = 30000000, /* of all files of a bundle together, and of its archive */
    MG_SKILL_FILES_MAX = 1000,
    MG_SKILL_PATH_MAX = 1024,        /* bytes */
    MG_SKILL_COMPONENT_MAX = 255,    /* bytes */
    MG_SKILL_FRONT_MAX = 64 * 1024,  /* bytes of SKILL.md's front matter */
    MG_SKILL_NAME_MAX = 64,          /* characters */
    MG_SKILL_DESCRIPTION_MAX = 1024, /* characters */
    MG_SKILL_TITLE_MAX = 255,        /* characters of display_name */
    MG_SKILLS_MAX = 500,             /* of an agent */
};

struct mg_skill_file {
    struct mg_sv path; /* "top/dir/file"; a folder ends in a slash and has no content */
    struct mg_sv content;
    bool executable; /* by the archive that it came in; the canonical one has none */
};

struct mg_skill_bundle {
    struct mg_skill_file *files; /* folders left out, sorted by path */
    int n;
    struct mg_sv directory, name, description;
};

/* One path of a bundle, before anything of it is kept. err names it. */
mg_rc mg_skill_path_check(struct mg_sv path, struct mg_err *err) MG_MUSTCHECK;
/* All files, in any order, without a look into them: sizes, no path twice, one top folder. name and description stay empty. */
mg_rc mg_skill_layout(struct mg_skill_file *files, int n, struct mg_skill_bundle *ret, struct mg_err *err) MG_MUSTCHECK;
/* The same, and what is in them: one top folder with SKILL.md, sizes, front matter. Twins that only Unicode knows are the caller's. */
mg_rc mg_skill_check(struct mg_arena *a, struct mg_skill_file *files, int n, struct mg_skill_bundle *ret,
                     struct mg_err *err) MG_MUSTCHECK;

/* Whether the id is that of a skill of the type anthropic: the name in its SKILL.md, where a custom one has an id of our own. */
bool mg_skill_is_vendors(struct mg_sv id);
/* What the front matter of a SKILL.md says; also read by its fuzzer. */
mg_rc mg_skill_front(struct mg_arena *a, struct mg_sv text, struct mg_sv *ret_name, struct mg_sv *ret_description,
                     struct mg_err *err) MG_MUSTCHECK;

/* An agent's skills: [{"type":"custom","skill_id":...,"version":...}] with version "latest" where none is given. Finished JSON text. */
mg_rc mg_agent_skills_parse(struct mg_arena *a, const struct mg_json *v, const char *place, struct mg_sv *ret,
                            struct mg_err *err) MG_MUSTCHECK;

#endif
