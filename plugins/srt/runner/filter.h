#ifndef MANGO_SRT_FILTER_H
#define MANGO_SRT_FILTER_H

/* Holds this process and all that it ever starts to the system calls of ordinary programs. 0 or errno. */
int filter_install(void);

#endif
