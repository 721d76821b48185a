/* What the plugin and the program in the container (mango-box) say to each other over one byte stream.
 *
 * Frames: a head and len bytes. Each command or file operation has a channel of its own, whose number the plugin chooses;
 * channel 0 is the connection. A container keeps the program that it was made with, so this protocol only grows: the
 * plugin speaks the version that HELLO names, and unknown kinds are ignored by both sides.
 *
 * Credit: neither side sends more than WINDOW bytes of DATA on a channel and direction before the other has given more
 * by MUX_CREDIT. So no reader ever holds more than that for one channel, and a command that nobody listens to holds up
 * nobody else. */
#ifndef MANGO_DOCKER_MUX_H
#define MANGO_DOCKER_MUX_H

#include <stdint.h>

enum {
    MUX_MAGIC = 0x314D474D, /* "MGM1" */
    MUX_VERSION = 1,
    MUX_DATA_MAX = 32 * 1024,             /* bytes of one DATA frame: what the Engine copies in one piece */
    MUX_WINDOW = 256 * 1024,              /* bytes in flight of one channel and direction */
    MUX_STRINGS_MAX = 1024 * 1024,        /* bytes of arguments and variables of one command */
    MUX_REQUEST_MAX = 1024 * 1024 + 8192, /* bytes of the largest request: the strings, a path and the head */
    MUX_PATH_MAX = 4096,
    MUX_TEXT_MAX = 256, /* bytes of words behind an END */
};

struct mux_head {
    uint32_t len, chan;
    uint8_t kind, stream;
    uint16_t reserved;
};

enum {
    /* plugin -> box */
    MUX_EXEC = 1, /* struct mux_exec, the folder, the strings */
    MUX_READ,     /* struct mux_file, the path */
    MUX_WRITE,    /* the same; the content follows as DATA, then EOF */
    MUX_STAT,     /* the same */
    MUX_KILL,     /* kill everything of the command; END tells when that is done */
    MUX_CLOSE,    /* forget the channel: what the command has left is killed, a write is undone */
    MUX_PING,
    MUX_GREET, /* the first frame: a server is there */
    /* box -> plugin */
    MUX_HELLO = 32, /* struct mux_hello; the first frame */
    MUX_STARTED,    /* the command is about to run */
    MUX_END,        /* struct mux_end and words for people; the last frame of a channel */
    MUX_PONG,
    /* both */
    MUX_DATA = 64, /* stream 1 and 2: output of a command; 0: content of a file; plugin -> box 0: input */
    MUX_EOF,       /* no more DATA: the command's input ends, the content is whole */
    MUX_CREDIT,    /* uint32_t bytes more */
};

struct mux_hello {
    uint32_t magic, version;
};

enum {
    MUX_KEEP_STDIN = 1, /* input comes as DATA; without it there is none */
    MUX_HOLD = 2,       /* what outlives the command stays below it after END, until KILL (one END more) or CLOSE */
};
struct mux_exec {
    uint32_t flags, argc, envc, cwd_len;
    uint64_t max_output; /* bytes of each stream that are sent; the rest is read and dropped. 0: no bound */
};

enum { MUX_NOFOLLOW = 1 };
struct mux_file {
    uint64_t offset, max; /* READ */
    uint32_t mode, flags; /* WRITE: of a new file. STAT: MUX_NOFOLLOW */
};

enum { MUX_HOW_ENDED = 1, MUX_HOW_KILLED, MUX_HOW_LOST };
struct mux_end {
    int32_t error;       /* errno: of the start of a command, of a file; then nothing else counts */
    uint32_t how;        /* commands: MUX_HOW_* */
    int32_t status;      /* MUX_HOW_ENDED: as waitpid gives it */
    uint32_t oom;        /* 1: something of the container was killed for want of memory meanwhile */
    uint32_t held;       /* 1: MUX_HOLD, and something of it lives on */
    uint32_t left;       /* MUX_HOW_KILLED: processes that would not die */
    uint32_t eof;        /* READ: the file ended inside of the range */
    uint32_t kind, mode; /* STAT: 'f' 'd' 'l' 'o' and permission bits */
    uint32_t reserved;
    uint64_t out_bytes, err_bytes, peak_kib; /* produced by the command */
    uint64_t size;                           /* STAT */
    int64_t mtime_us;
};

#endif
