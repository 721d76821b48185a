#include <stddef.h>

#include "common/runner/relay.h"

const char *const egress_env[] = {
    "http_proxy=http://127.0.0.1:3128",  "https_proxy=http://127.0.0.1:3128",  "HTTP_PROXY=http://127.0.0.1:3128",
    "HTTPS_PROXY=http://127.0.0.1:3128", "all_proxy=socks5h://127.0.0.1:3128", "ALL_PROXY=socks5h://127.0.0.1:3128",
    "no_proxy=localhost,127.0.0.1,::1",  "NO_PROXY=localhost,127.0.0.1,::1",   NULL,
};
