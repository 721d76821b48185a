#include "plugin/elf.h"

#include <elf.h>
#include <link.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/mem.h"

enum { ELF_FILE_MAX = 1 << 30 /* bytes; a plugin with everything linked into it has a few hundred MiB */ };

struct image {
    const unsigned char *p;
    size_t len;
};

static void mg_image_cleanup(struct image *im)
{
    if (im->p)
        munmap((void *)im->p, im->len);
}

/* The bytes [off, off + n) of the file, or NULL when they are not all there. */
static const void *at(const struct image *im, uint64_t off, uint64_t n)
{
    return off <= im->len && n <= im->len - off ? im->p + off : NULL;
}

static mg_rc map_file(int fd, struct image *ret, struct mg_err *err)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return mg_err_errno(err, errno, "cannot look at it");
    if (!S_ISREG(st.st_mode) || st.st_size < (off_t)sizeof(ElfW(Ehdr)) || st.st_size > ELF_FILE_MAX)
        return mg_err_set(err, MG_EINVAL, "it is not an ELF shared object");
    void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED)
        return mg_err_errno(err, errno, "cannot map it");
    *ret = (struct image){p, (size_t)st.st_size};
    return MG_OK;
}

static mg_rc check_header(const ElfW(Ehdr) * eh, struct mg_err *err)
{
    if (memcmp(eh->e_ident, ELFMAG, SELFMAG) != 0)
        return mg_err_set(err, MG_EINVAL, "it is not an ELF shared object");
    if (eh->e_ident[EI_CLASS] != ELFCLASS64)
        return mg_err_set(err, MG_EINVAL, "it is not a 64-bit ELF shared object");
    if (eh->e_type != ET_DYN)
        return mg_err_set(err, MG_EINVAL, "it is an ELF file but not a shared object (type %d)", eh->e_type);
    return MG_OK;
}

static void each_symbol(const struct image *im, const ElfW(Shdr) * sh, const ElfW(Shdr) * strings,
                        void (*fn)(void *, const char *), void *ctx)
{
    const char *str = at(im, strings->sh_offset, strings->sh_size);
    const ElfW(Sym) *sym = at(im, sh->sh_offset, sh->sh_size);
    if (!str || !sym || strings->sh_size == 0 || str[strings->sh_size - 1] != '\0')
        return;
    for (size_t i = 0, n = sh->sh_size / sizeof(*sym); i < n; i++) {
        unsigned bind = ELF64_ST_BIND(sym[i].st_info), vis = ELF64_ST_VISIBILITY(sym[i].st_other);
        bool visible = vis == STV_DEFAULT || vis == STV_PROTECTED;
        if (sym[i].st_shndx != SHN_UNDEF && bind != STB_LOCAL && visible && sym[i].st_name < strings->sh_size)
            fn(ctx, str + sym[i].st_name);
    }
}

mg_rc mg_elf_exports(int fd, void (*fn)(void *ctx, const char *name), void *ctx, struct mg_err *err)
{
    mg_auto(image) struct image im = {0};
    mg_rc rc = map_file(fd, &im, err);
    if (rc < 0)
        return rc;
    const ElfW(Ehdr) *eh = at(&im, 0, sizeof(*eh));
    if (!eh)
        return mg_err_set(err, MG_EINVAL, "it is not an ELF shared object");
    rc = check_header(eh, err);
    if (rc < 0)
        return rc;
    const ElfW(Shdr) *sh = at(&im, eh->e_shoff, (uint64_t)eh->e_shnum * sizeof(*sh));
    if (!sh || eh->e_shentsize != sizeof(*sh) || eh->e_shoff % _Alignof(ElfW(Shdr)) != 0)
        return mg_err_set(err, MG_EINVAL, "it is a damaged ELF file (no section table)");
    for (unsigned i = 0; i < eh->e_shnum; i++) {
        if (sh[i].sh_type == SHT_DYNSYM && sh[i].sh_link < eh->e_shnum && sh[i].sh_offset % 8 == 0)
            each_symbol(&im, &sh[i], &sh[sh[i].sh_link], fn, ctx);
    }
    return MG_OK;
}
