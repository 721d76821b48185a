/* Removing what commands have left, whatever its depth. */
#ifndef MANGO_COMMON_REMOVE_H
#define MANGO_COMMON_REMOVE_H

/* Removes a folder of base with everything below it; follows no link. 0 or errno. */
int remove_tree(int base_fd, const char *name);

#endif
