#ifndef MANGO_SRT_OUTSIDE_H
#define MANGO_SRT_OUTSIDE_H

/* Becomes the user ("-": stays), starts argv with the runner's socket as its standard input, and sees to its end. The
 * process's exit status. */
int outside_main(const char *user, char **argv);

#endif
