/* A client that speaks raw bytes, HTTP and WebSocket to the server of support/http-rig.h, and what is asserted of the answers. */
#ifndef MG_TESTS_HTTP_CLIENT_H
#define MG_TESTS_HTTP_CLIENT_H

#include <stdbool.h>
#include <stddef.h>

struct rig;

struct client {
    int fd;
    char *buf; /* received and not yet taken; NUL behind */
    size_t len, cap;
    bool eof;
};

struct answer {
    int status;
    char head[8192]; /* with the status line */
    char *body;      /* malloc memory, NUL behind; chunks joined */
    size_t len;
};

struct client *client_open(const struct rig *r);
void client_close(struct client *c);
void client_send(struct client *c, const char *bytes, size_t n);
void client_say(struct client *c, const char *text);
void client_drip(struct client *c, const char *text); /* one byte a segment */
/* Reads one answer; fails the test when it does not come. */
struct answer *client_answer(struct client *c);
void answer_free(struct answer *a);
/* Reads until text has come; the bytes up to its end are taken. Returns them (valid until the next call). */
const char *client_until(struct client *c, const char *text);
bool client_ended(struct client *c); /* waits for the end of the connection; false: bytes came */
const char *answer_header(const struct answer *a, const char *name); /* value or NULL; a static buffer */

/* The next answer has the status, a request-id, and a body that holds the text. */
void client_expect(struct client *c, int status, const char *body_part);
/* One request on a connection of its own that is refused: status, the error object, a reason, and (closed) the end of
 * the connection; else the connection goes on. */
void client_refused(const struct rig *r, const char *request, int status, const char *type, const char *reason,
                    bool closed);
void client_refused_bytes(const struct rig *r, const char *request, size_t n, int status, const char *type,
                          const char *reason, bool closed);
/* Asks for the event stream of session s1; query from its "?" on, headers with their line ends. */
struct client *stream_open(const struct rig *r, const char *query, const char *headers);
/* before, n times c, after; malloc memory. */
char *filled(const char *before, char c, size_t n, const char *after);

/* WebSocket client */
struct client *ws_open(struct rig *r, const char *path, const char *headers);
void ws_send_frame(struct client *c, int first_byte, const char *content, size_t n);
void ws_text(struct client *c, const char *text);
/* The next frame's content (NUL-terminated, valid until the next call); *ret_opcode its opcode. Pings are answered and
 * skipped unless want_pings. */
const char *ws_frame(struct client *c, int *ret_opcode, size_t *ret_len, bool want_pings);
const char *ws_expect_text(struct client *c);
int ws_expect_close(struct client *c); /* its code */

#endif
