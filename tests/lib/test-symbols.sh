#!/usr/bin/env bash
# libmango and libmango-worker export their doors and nothing else; no plugin exports more than its entry. RTLD_LOCAL does not stop clashes with a host that does.
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
names=(poller_{cancel,close,next,open} reply_{block,error,text} work_{continue,environment_id,free,id,json,new,secret,session_id,type}
    worker_{attach,close,open,run,serve,stop,version})
expect "$build/.libs/libmango-worker.so" "$(printf 'mango_%s ' "${names[@]}" | sed 's/ $//')"
# A worker is no server: it must run where there is none.
if ldd "$build/.libs/libmango-worker.so" | grep -E 'libpq|libwebsockets|libconfig'; then
    echo "FAILED: libmango-worker needs a library of the server"
    failed=$((failed + 1))
fi
for so in "$build"/plugins/loadable/*.so; do
    expect "$so" "mango_plugin_entry"
done
echo "$passed passed, $failed failed"
((failed == 0))
