/* Runs a fuzz target over its corpus without an engine: every file as it is, cut short at many places, and with single bytes changed.
 * Deterministic, so a failure of `make check` can be repeated. Arguments are files to run instead. */
#include <dirent.h>
#include <string.h>

#include "fuzz/fuzz.h"

enum {
    FILE_MAX = 1 << 20, /* bytes of a corpus file */
    VARIANTS = 200      /* cuts and changes of each file: the whole replay stays below a second */
};

static unsigned long runs;

/* In memory of exactly its size, so that a sanitizer sees a read past the end. */
static void run(const uint8_t *data, size_t n)
{
    uint8_t *copy = malloc(n ? n : 1);
    if (!copy)
        abort();
    memcpy(copy, data, n);
    LLVMFuzzerTestOneInput(copy, n);
    free(copy);
    runs++;
}

static void run_variants(uint8_t *data, size_t n)
{
    static const uint8_t changes[] = {0x00, 0x22, 0x5c, 0x7f, 0xc0, 0xff};
    size_t step = n / VARIANTS + 1;
    for (size_t i = 0; i < n; i += step) {
        run(data, i);
        uint8_t was = data[i];
        data[i] = changes[(i / step) % sizeof(changes)];
        run(data, n);
        data[i] = was;
    }
}

static bool run_file(const char *path)
{
    static uint8_t data[FILE_MAX];
    FILE *f = fopen(path, "rbe");
    if (!f) {
        perror(path);
        return false;
    }
    size_t n = fread(data, 1, sizeof(data), f);
    fclose(f);
    run(data, n);
    run_variants(data, n);
    return true;
}

static bool run_folder(const char *dir)
{
    struct dirent **names = NULL;
    int n = scandir(dir, &names, NULL, alphasort);
    if (n <= 0) {
        fprintf(stderr, "%s: no corpus\n", dir);
        return false;
    }
    bool ok = true;
    for (int i = 0; i < n; i++) {
        char path[4096 + 256];
        snprintf(path, sizeof(path), "%s/%s", dir, names[i]->d_name);
        if (names[i]->d_name[0] != '.')
            ok &= run_file(path);
        free(names[i]);
    }
    free(names);
    return ok;
}

int main(int argc, char **argv)
{
    bool ok = true;
    for (int i = 1; i < argc; i++)
        ok &= run_file(argv[i]);
    if (argc == 1) {
        const char *src = getenv("MANGO_TEST_SRCDIR"), *name = strstr(argv[0], "fuzz-");
        for (const char *p = name; p; p = strstr(p + 1, "fuzz-"))
            name = p;
        if (!name)
            return EXIT_FAILURE;
        char dir[4096];
        snprintf(dir, sizeof(dir), "%s/tests/fuzz/corpus/%s", src ? src : ".", name + strlen("fuzz-"));
        ok = run_folder(dir);
    }
    printf("replayed %lu inputs\n", runs);
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
