/* Reading is libzip's, with its strict checks of consistency; what it would let pass (links, devices, encryption, odd methods, sizes that lie)
 * is refused here. Writing is ours: libzip's archives depend on the clock and on the version of zlib. */
#include "domain/zip.h"

#include <sys/stat.h>
#include <zip.h>

#include "base/buf.h"
#include "base/mem.h"

enum {
    LOCAL_HEAD = 0x04034b50,
    CENTRAL_HEAD = 0x02014b50,
    END_HEAD = 0x06054b50,
    CENTRAL_BYTES = 46, /* of a directory's entry before its name */
    END_BYTES = 22,     /* of the directory's end without a comment */
    PIECE = 64 * 1024,
    ENTRIES_MAX = 2 * MG_SKILL_FILES_MAX, /* with folders */
};

struct reading {
    struct mg_arena *arena;
    zip_t *zip;
    struct mg_skill_file *files;
    int n;
    size_t bytes;
};

static mg_rc refuse(struct mg_err *err, const char *why)
{
    return mg_err_set(err, MG_EINVAL, "files: the archive %s", why);
}

static mg_rc refuse_member(struct mg_sv name, const char *why, struct mg_err *err)
{
    return mg_err_set(err, MG_EINVAL, "files: the archive's '%.*s' %s", (int)(name.len < 90 ? name.len : 90), name.ptr,
                      why);
}

/* What it is by the attributes of the system that made it. */
static const char *kind_fault(zip_t *z, zip_uint64_t i, bool folder)
{
    zip_uint8_t system = 0;
    zip_uint32_t attributes = 0;
    if (zip_file_get_external_attributes(z, i, 0, &system, &attributes) < 0)
        return "has attributes that cannot be read";
    if (system != ZIP_OPSYS_UNIX && system != ZIP_OPSYS_OS_X)
        return NULL;
    mode_t kind = (mode_t)(attributes >> 16) & S_IFMT;
    if (kind == 0)
        return NULL;
    if (S_ISLNK(kind))
        return "is a symbolic link";
    if (!S_ISREG(kind) && !S_ISDIR(kind))
        return "is a device or another special file";
    return S_ISDIR(kind) == folder ? NULL : "is a folder by its name or its mode, not by both";
}

static bool executable(zip_t *z, zip_uint64_t i)
{
    zip_uint8_t system = 0;
    zip_uint32_t attributes = 0;
    (void)zip_file_get_external_attributes(z, i, 0, &system, &attributes);
    return (system == ZIP_OPSYS_UNIX || system == ZIP_OPSYS_OS_X) && (attributes >> 16 & 0111);
}

static mg_rc check_member(struct reading *r, zip_uint64_t i, const zip_stat_t *st, struct mg_sv name,
                          struct mg_err *err)
{
    bool folder = name.len && name.ptr[name.len - 1] == '/';
    const char *why = NULL;
    mg_rc rc = mg_skill_path_check(name, err);
    if (rc < 0)
        return rc;
    if (!(st->valid & ZIP_STAT_SIZE) || !(st->valid & ZIP_STAT_COMP_METHOD) ||
        !(st->valid & ZIP_STAT_ENCRYPTION_METHOD))
        why = "has no size or method";
    else if (st->encryption_method != ZIP_EM_NONE)
        why = "is encrypted";
    else if (st->comp_method != ZIP_CM_STORE && st->comp_method != ZIP_CM_DEFLATE)
        why = "is packed by another method than stored or deflated";
    else if (folder && st->size)
        why = "is a folder with content";
    else if (st->size >= MG_SKILL_BYTES_MAX || r->bytes + st->size >= MG_SKILL_BYTES_MAX)
        why = mg_arena_printf(r->arena, "makes the skill larger than %d bytes", MG_SKILL_BYTES_MAX).ptr;
    else
        why = kind_fault(r->zip, i, folder);
    return why ? refuse_member(name, why, err) : MG_OK;
}

/* As many bytes as were declared, no more and no fewer; libzip compares the checksum. */
static mg_rc unpack(struct reading *r, zip_uint64_t i, size_t size, struct mg_sv name, struct mg_sv *ret,
                    struct mg_err *err)
{
    char *to = mg_arena_alloc(r->arena, size + 1);
    size_t at = 0;
    zip_file_t *f = zip_fopen_index(r->zip, i, 0);
    if (!f)
        return refuse_member(name, "cannot be unpacked", err);
    for (zip_int64_t n = 1; n > 0 && at <= size;) {
        n = zip_fread(f, to + at, size + 1 - at < PIECE ? size + 1 - at : PIECE);
        if (n < 0) {
            (void)zip_fclose(f);
            return refuse_member(name, "is damaged", err);
        }
        at += (size_t)n;
    }
    if (zip_fclose(f) != 0 || at != size)
        return refuse_member(name, "has another size or checksum than it says", err);
    r->bytes += size;
    *ret = mg_sv_n(to, size);
    return MG_OK;
}

static mg_rc read_member(struct reading *r, zip_uint64_t i, struct mg_err *err)
{
    zip_stat_t st;
    /* raw: the name as it stands, not what libzip takes it for */
    if (zip_stat_index(r->zip, i, ZIP_FL_ENC_RAW, &st) < 0 || !(st.valid & ZIP_STAT_NAME))
        return refuse(err, "has a member without a name");
    struct mg_sv name = mg_sv_of(st.name);
    mg_rc rc = check_member(r, i, &st, name, err);
    if (rc < 0)
        return rc;
    struct mg_skill_file *f = &r->files[r->n++];
    *f = (struct mg_skill_file){.path = mg_arena_sv(r->arena, name)};
    f->executable = executable(r->zip, i);
    return unpack(r, i, (size_t)st.size, f->path, &f->content, err);
}

static mg_rc read_all(struct reading *r, struct mg_err *err)
{
    zip_int64_t n = zip_get_num_entries(r->zip, 0);
    mg_rc rc = MG_OK;
    if (n > ENTRIES_MAX)
        return mg_err_set(err, MG_EINVAL, "files: at most %d files are allowed", MG_SKILL_FILES_MAX);
    r->files = mg_arena_alloc(r->arena, sizeof(*r->files) * (size_t)(n + 1));
    for (zip_int64_t i = 0; i < n && rc >= 0; i++)
        rc = read_member(r, (zip_uint64_t)i, err);
    return rc;
}

static uint32_t get(const unsigned char *p, int bytes)
{
    uint32_t v = 0;
    for (int i = bytes - 1; i >= 0; i--)
        v = v << 8 | p[i];
    return v;
}

/* libzip's names end at a NUL; in the directory they need not. The directory is known to be consistent by now. */
static bool has_nul_name(struct mg_sv archive)
{
    const unsigned char *p = (const unsigned char *)archive.ptr;
    size_t end = archive.len < END_BYTES ? 0 : archive.len - END_BYTES;
    while (end > 0 && get(p + end, 4) != END_HEAD)
        end--;
    size_t at = get(p + end + 16, 4);
    while (at + CENTRAL_BYTES <= end && get(p + at, 4) == CENTRAL_HEAD) {
        size_t name = get(p + at + 28, 2), more = get(p + at + 30, 2) + get(p + at + 32, 2);
        if (at + CENTRAL_BYTES + name > end || memchr(p + at + CENTRAL_BYTES, 0, name))
            return true;
        at += CENTRAL_BYTES + name + more;
    }
    return at != end;
}

mg_rc mg_zip_read(struct mg_arena *a, struct mg_sv archive, struct mg_skill_file **ret, int *ret_n, struct mg_err *err)
{
    struct reading r = {.arena = a};
    if (archive.len < 4 || memcmp(archive.ptr, "PK\x03\x04", 4) != 0)
        return refuse(err, "is no zip file");
    if (archive.len >= MG_SKILL_BYTES_MAX)
        return mg_err_set(err, MG_EINVAL, "files: the archive has %d bytes or more", MG_SKILL_BYTES_MAX);
    zip_error_t error;
    zip_error_init(&error);
    zip_source_t *source = zip_source_buffer_create(archive.ptr, archive.len, 0, &error);
    if (source)
        r.zip = zip_open_from_source(source, ZIP_RDONLY | ZIP_CHECKCONS, &error);
    if (!r.zip) {
        if (source)
            zip_source_free(source);
        zip_error_fini(&error);
        return refuse(err, "is damaged: its directory and its members do not agree");
    }
    mg_rc rc = has_nul_name(archive) ? refuse(err, "has a name with NUL in it, or another form than plain zip")
                                     : read_all(&r, err);
    zip_discard(r.zip);
    zip_error_fini(&error);
    *ret = r.files;
    *ret_n = r.n;
    return rc;
}

/* ---- writing ---- */

static void put16(struct mg_buf *b, unsigned v)
{
    const char p[2] = {(char)(v & 0xff), (char)(v >> 8 & 0xff)};
    (void)mg_buf_append(b, p, sizeof(p));
}

static void put32(struct mg_buf *b, uint32_t v)
{
    put16(b, v & 0xffff);
    put16(b, v >> 16);
}

static uint32_t crc32_of(struct mg_sv s)
{
    uint32_t c = 0xffffffff;
    for (size_t i = 0; i < s.len; i++) {
        c ^= (unsigned char)s.ptr[i];
        for (int k = 0; k < 8; k++)
            c = c >> 1 ^ (c & 1 ? 0xedb88320 : 0);
    }
    return ~c;
}

enum {
    VERSION = 20,          /* of the format: folders and stored files */
    MADE_BY = 3 << 8 | 20, /* Unix, so that the mode counts */
    UTF8_NAME = 1 << 11,
    DATE = (1 << 5) | 1, /* 1 January 1980, the first that the format knows */
};

/* What both heads of a member have in common. */
static void put_common(struct mg_buf *b, const struct mg_skill_file *f, uint32_t crc)
{
    put16(b, VERSION);
    put16(b, UTF8_NAME);
    put16(b, 0); /* stored */
    put16(b, 0); /* midnight */
    put16(b, DATE);
    put32(b, crc);
    put32(b, (uint32_t)f->content.len);
    put32(b, (uint32_t)f->content.len);
    put16(b, (unsigned)f->path.len);
    put16(b, 0);
}

mg_rc mg_zip_write(const struct mg_skill_file *files, int n, struct mg_buf *out)
{
    mg_auto(buf) struct mg_buf central = MG_BUF_INIT(4 * 1024 * 1024);
    for (int i = 0; i < n; i++) {
        uint32_t at = (uint32_t)out->len, crc = crc32_of(files[i].content);
        put32(out, LOCAL_HEAD);
        put_common(out, &files[i], crc);
        (void)mg_buf_sv(out, files[i].path);
        (void)mg_buf_sv(out, files[i].content);
        put32(&central, CENTRAL_HEAD);
        put16(&central, MADE_BY);
        put_common(&central, &files[i], crc);
        put16(&central, 0); /* comment */
        put16(&central, 0); /* disk */
        put16(&central, 0);
        put32(&central, (uint32_t)(S_IFREG | 0644) << 16);
        put32(&central, at);
        (void)mg_buf_sv(&central, files[i].path);
    }
    uint32_t from = (uint32_t)out->len;
    (void)mg_buf_sv(out, mg_buf_view(&central));
    put32(out, END_HEAD);
    put32(out, 0);
    put16(out, (unsigned)n);
    put16(out, (unsigned)n);
    put32(out, (uint32_t)central.len);
    put32(out, from);
    put16(out, 0);
    return mg_buf_ok(out) && mg_buf_ok(&central) ? MG_OK : MG_ETOOBIG;
}
