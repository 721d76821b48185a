/* Zip archives: strangers' are read with suspicion, ours are written in one form only. */
#ifndef MG_DOMAIN_ZIP_H
#define MG_DOMAIN_ZIP_H

#include "base/buf.h"
#include "domain/skill.h"

/* The members of an archive in memory: plain files and folders, within the limits of a skill, or MG_EINVAL that names the member. Nothing of it
 * is unpacked beyond the limits. Contents are arena memory. */
mg_rc mg_zip_read(struct mg_arena *a, struct mg_sv archive, struct mg_skill_file **ret, int *ret_n,
                  struct mg_err *err) MG_MUSTCHECK;
/* The canonical archive: in the order given, stored, one fixed time, modes 0644. The same files give the same bytes. */
mg_rc mg_zip_write(const struct mg_skill_file *files, int n, struct mg_buf *out) MG_MUSTCHECK;

#endif
