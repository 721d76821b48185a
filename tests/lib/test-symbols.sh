#!/usr/bin/env bash
# libmango exports its door and nothing else; no plugin exports more than its entry. RTLD_LOCAL does not stop clashes with a host that does.
set -euo pipefail
build=${MANGO_TEST_BUILDDIR:?}
exported() {
    nm -D --defined-only "$1" | awk '$2 ~ /[TDBRVW]/ {print $3}' | sed 's/@.*//' | grep -vE '^(MANGO_[0-9]+|__asan_|__ubsan_|__sanitizer_|__gcov|_init$|_fini$)' | sort | tr '\n' ' '
}
failed=0
passed=0
expect() {
    local found
    found=$(exported "$1")
    if [[ $found == "$2 " ]]; then
        echo "ok: $(basename "$1") exports $2"
        passed=$((passed + 1))
    else
        echo "FAILED: $(basename "$1") exports: $found; expected: $2"
        failed=$((failed + 1))
    fi
}
expect "$build/.libs/libmango.so" "mango_close mango_open mango_port mango_version"
for so in "$build"/plugins/loadable/*.so; do
    expect "$so" "mango_plugin_entry"
done
echo "$passed passed, $failed failed"
((failed == 0))
