#include "common/remote/base64.h"

enum { BAD = 64 };

/* A digit's value; BAD for what is none. */
static uint32_t value(unsigned char c)
{
    static const unsigned char table[256] = {
        ['A'] = 1,  ['B'] = 2,  ['C'] = 3,  ['D'] = 4,  ['E'] = 5,  ['F'] = 6,  ['G'] = 7,  ['H'] = 8,
        ['I'] = 9,  ['J'] = 10, ['K'] = 11, ['L'] = 12, ['M'] = 13, ['N'] = 14, ['O'] = 15, ['P'] = 16,
        ['Q'] = 17, ['R'] = 18, ['S'] = 19, ['T'] = 20, ['U'] = 21, ['V'] = 22, ['W'] = 23, ['X'] = 24,
        ['Y'] = 25, ['Z'] = 26, ['a'] = 27, ['b'] = 28, ['c'] = 29, ['d'] = 30, ['e'] = 31, ['f'] = 32,
        ['g'] = 33, ['h'] = 34, ['i'] = 35, ['j'] = 36, ['k'] = 37, ['l'] = 38, ['m'] = 39, ['n'] = 40,
        ['o'] = 41, ['p'] = 42, ['q'] = 43, ['r'] = 44, ['s'] = 45, ['t'] = 46, ['u'] = 47, ['v'] = 48,
        ['w'] = 49, ['x'] = 50, ['y'] = 51, ['z'] = 52, ['0'] = 53, ['1'] = 54, ['2'] = 55, ['3'] = 56,
        ['4'] = 57, ['5'] = 58, ['6'] = 59, ['7'] = 60, ['8'] = 61, ['9'] = 62, ['+'] = 63, ['/'] = 64};
    return table[c] ? table[c] - 1U : BAD;
}

bool base64_decode(struct mango_sv text, char *out, uint64_t *ret_n)
{
    const unsigned char *p = (const unsigned char *)text.ptr;
    uint64_t n = text.len, at = 0;
    unsigned pad = 0;
    if (n % 4 != 0)
        return false;
    while (pad < 2 && n > 0 && p[n - 1] == '=') {
        n--;
        pad++;
    }
    for (uint64_t i = 0; i < n; i += 4) {
        uint32_t v = 0;
        unsigned have = n - i < 4 ? (unsigned)(n - i) : 4;
        for (unsigned k = 0; k < 4; k++) {
            uint32_t d = k < have ? value(p[i + k]) : 0;
            if (d == BAD)
                return false;
            v = v << 6 | d;
        }
        out[at++] = (char)(v >> 16);
        if (have > 2)
            out[at++] = (char)(v >> 8);
        if (have > 3)
            out[at++] = (char)v;
    }
    *ret_n = at;
    return true;
}
