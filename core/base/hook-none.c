/* Test hooks of the real program: none. */
#include "base/hook.h"

void mg_hook(const char *name)
{
    (void)name;
}
