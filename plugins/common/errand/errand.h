/* mango-rbox errand REQUEST | -f FILE: does one errand in a sandbox of a remote service, told on its command line, and
 * answers on standard output. With -t, on a terminal, it does one after the other (talk.c).
 *
 * It is put into the sandbox by the plugin (common/remote/errands.h) and stands there in ROOT/.mango, with what it keeps:
 *
 *   errand-VERSION     the program
 *   run-ID/            a command: out, err (what it said, up to its bound), lock (held until the result
 *                      stands, or its supervisor is dead), result
 *   in-NAME, out-NAME  content on its way in or out
 *
 * A service's own streams are not to be trusted with bytes: lines are cut, ends of lines and NUL bytes are lost, both streams are
 * one, and a connection that ends kills nothing. So a command's output goes into files, and a command is known by its number:
 * asking for it again gives the rest of its output and how it ended, and never starts it twice.
 *
 * The request is a list of fields (see below) in base64. The answer is lines of letters and digits that no service changes, each
 * with ERRAND_MARK before it; everything else on standard output is somebody else's. The last one is always one of . ~ ! f s k,
 * so that an answer that was cut is seen. */
#ifndef MANGO_COMMON_ERRAND_H
#define MANGO_COMMON_ERRAND_H

#include <stdint.h>

#define ERRAND_DIR ".mango" /* under the root; mode 0700 */
#define ERRAND_MARK "mango:"

enum {
    ERRAND_ID_LEN = 32,                  /* hex digits of a command's number */
    ERRAND_NAME_LEN = 24,                /* hex digits of the name of content on its way */
    ERRAND_PIECE = 6144,                 /* bytes of content in a line: 8 KiB of base64 */
    ERRAND_INLINE_MAX = 384 * 1024,      /* bytes of content in one answer; more is fetched as a file */
    ERRAND_READ_MAX = 96 * 1024,         /* bytes of a file that are read in one answer; more is fetched as a file */
    ERRAND_KEEP_MAX = 256 * 1024 * 1024, /* bytes of one stream that are kept where the caller sets no bound */
    ERRAND_REQUEST_MAX = 2 * 1024 * 1024,
    ERRAND_SWEEP_S = 3600,       /* what is older and over was left by a server that died */
    ERRAND_KILL_MS = 6000,       /* for a kill to be answered */
    ERRAND_TALK_MS = 30000,      /* without an errand, and -t ends: an open terminal keeps a sandbox awake */
    ERRAND_TALK_MAX = 96 * 1024, /* bytes of a line of -t */
};

/* The first field of a request, a number. Numbers are 8 bytes, low byte first; strings a number and so many bytes. Then come
 * root (a string) and a list of names to be removed (a number and strings: "run-ID", "in-NAME", "out-NAME"), then:
 *
 *   HELLO   program: the name of the file that was put in; it gets its name and mode when it works here
 *   RUN     as WAIT, then limit in ms (0: none), bound of each stream (0: ERRAND_KEEP_MAX), name of the input or "", folder,
 *           number of arguments, arguments, number of variables, variables
 *   WAIT    id, bytes of stdout and of stderr that have come, how long to wait in ms, how soon after output to answer in ms
 *           (0: only at the end of the wait)
 *   KILL    id, 1 when its limit has passed, else 0; answers as WAIT does when it has ended
 *   READ    path, offset, bytes
 *   PUT     path, mode or 0, name of the content, its bytes
 *   STAT    path, 1 for the link itself
 *
 * Answers, with MARK before each:
 *   o OFFSET BASE64, e OFFSET BASE64    output
 *   b STREAM OFFSET BYTES               output to be fetched from run-ID/out or run-ID/err
 *   ~                                   it runs on: ask again
 *   . KIND NUMBER OUT ERR PEAK          it has ended; KIND x exit code, s signal, t limit, c cancelled, f not started (errno; FOLDER
 *                                       when that was the folder), l nobody knows; OUT and ERR bytes were said, PEAK KiB used
 *   d OFFSET BASE64                     content of a file
 *   f NAME SKIP BYTES EOF               content to be fetched: so many bytes of NAME behind SKIP; NAME "-": all has come
 *   s KIND BYTES MODE MTIME             stat; KIND f d l o, MODE octal, MTIME in microseconds
 *   k                                   done
 *   ! ERRNO TEXT                        not done; TEXT may be empty */
enum {
    ERRAND_HELLO = 1,
    ERRAND_RUN,
    ERRAND_WAIT,
    ERRAND_KILL,
    ERRAND_READ,
    ERRAND_PUT,
    ERRAND_STAT,
};

/* On a terminal: MARK "t" when it listens; for each line NUMBER BASE64 the lines MARK "< NUMBER", the answer, MARK ">". */

enum { ERRAND_FOLDER = 100000 /* added to errno when the command's folder was at fault */ };

#endif
