# Everything that `make check` runs. tests/lint/sources keeps the lists.
LDADD = tests/support/libsupport.la libworker.la libcore.la $(CMOCKA_LIBS)

check_LTLIBRARIES += tests/support/libsupport.la
# files: tests/support/*.c tests/support/*.h !tests/support/fake-*.c !tests/support/drive-*.c
tests_support_libsupport_la_SOURCES = \
	tests/support/egress-net.c \
	tests/support/egress-net.h \
	tests/support/egress-rig.c \
	tests/support/egress-rig.h \
	tests/support/endpoint-check.c \
	tests/support/endpoint-check.h \
	tests/support/endpoint-script.c \
	tests/support/endpoint-script.h \
	tests/support/endpoint-window.c \
	tests/support/endpoint-window.h \
	tests/support/endpoint.c \
	tests/support/endpoint.h \
	tests/support/host-box.c \
	tests/support/host-box.h \
	tests/support/http-client.c \
	tests/support/http-client.h \
	tests/support/http-rig.c \
	tests/support/http-rig.h \
	tests/support/local-rig.c \
	tests/support/local-rig.h \
	tests/support/peer-rig.c \
	tests/support/peer-rig.h \
	tests/support/pg-proxy.c \
	tests/support/pg-proxy.h \
	tests/support/pgtest-rig.h \
	tests/support/pgtest.c \
	tests/support/pgtest.h \
	tests/support/plugin-build.c \
	tests/support/plugin-build.h \
	tests/support/sandbox-rig.c \
	tests/support/sandbox-rig.h \
	tests/support/stub.c \
	tests/support/stub.h \
	tests/support/tool-call.c \
	tests/support/tool-call.h

# files: tests/unit/test-*.c = {stem}$(EXEEXT)
unit_tests = \
	tests/unit/test-agent-body$(EXEEXT) \
	tests/unit/test-arena$(EXEEXT) \
	tests/unit/test-buf$(EXEEXT) \
	tests/unit/test-cancel$(EXEEXT) \
	tests/unit/test-cli$(EXEEXT) \
	tests/unit/test-clock$(EXEEXT) \
	tests/unit/test-conf$(EXEEXT) \
	tests/unit/test-conformance$(EXEEXT) \
	tests/unit/test-connect$(EXEEXT) \
	tests/unit/test-context$(EXEEXT) \
	tests/unit/test-cron$(EXEEXT) \
	tests/unit/test-docker$(EXEEXT) \
	tests/unit/test-egress-doors$(EXEEXT) \
	tests/unit/test-egress-http$(EXEEXT) \
	tests/unit/test-egress-limits$(EXEEXT) \
	tests/unit/test-egress-policy$(EXEEXT) \
	tests/unit/test-egress-socks$(EXEEXT) \
	tests/unit/test-egress$(EXEEXT) \
	tests/unit/test-environment-body$(EXEEXT) \
	tests/unit/test-err$(EXEEXT) \
	tests/unit/test-event-draft$(EXEEXT) \
	tests/unit/test-gate$(EXEEXT) \
	tests/unit/test-grader$(EXEEXT) \
	tests/unit/test-hash$(EXEEXT) \
	tests/unit/test-health$(EXEEXT) \
	tests/unit/test-http-answer$(EXEEXT) \
	tests/unit/test-http-body$(EXEEXT) \
	tests/unit/test-http-connection$(EXEEXT) \
	tests/unit/test-http-head$(EXEEXT) \
	tests/unit/test-http-stream$(EXEEXT) \
	tests/unit/test-hub$(EXEEXT) \
	tests/unit/test-id$(EXEEXT) \
	tests/unit/test-inline-agent$(EXEEXT) \
	tests/unit/test-inside$(EXEEXT) \
	tests/unit/test-json-write$(EXEEXT) \
	tests/unit/test-json$(EXEEXT) \
	tests/unit/test-keep$(EXEEXT) \
	tests/unit/test-local-command$(EXEEXT) \
	tests/unit/test-local-file$(EXEEXT) \
	tests/unit/test-local-life$(EXEEXT) \
	tests/unit/test-local-process$(EXEEXT) \
	tests/unit/test-log$(EXEEXT) \
	tests/unit/test-map$(EXEEXT) \
	tests/unit/test-mcp-client$(EXEEXT) \
	tests/unit/test-mcp-result$(EXEEXT) \
	tests/unit/test-memory-look$(EXEEXT) \
	tests/unit/test-memory-sync$(EXEEXT) \
	tests/unit/test-message$(EXEEXT) \
	tests/unit/test-model-client$(EXEEXT) \
	tests/unit/test-net$(EXEEXT) \
	tests/unit/test-offline$(EXEEXT) \
	tests/unit/test-page$(EXEEXT) \
	tests/unit/test-plugin-conn$(EXEEXT) \
	tests/unit/test-plugin-http$(EXEEXT) \
	tests/unit/test-plugin-stream$(EXEEXT) \
	tests/unit/test-plugin-tls$(EXEEXT) \
	tests/unit/test-plugin$(EXEEXT) \
	tests/unit/test-pool$(EXEEXT) \
	tests/unit/test-prices$(EXEEXT) \
	tests/unit/test-remedy$(EXEEXT) \
	tests/unit/test-remote-socket$(EXEEXT) \
	tests/unit/test-remote$(EXEEXT) \
	tests/unit/test-request$(EXEEXT) \
	tests/unit/test-router$(EXEEXT) \
	tests/unit/test-session-body$(EXEEXT) \
	tests/unit/test-sigv4$(EXEEXT) \
	tests/unit/test-sse-parse$(EXEEXT) \
	tests/unit/test-sv$(EXEEXT) \
	tests/unit/test-tools-bash$(EXEEXT) \
	tests/unit/test-tools-edit$(EXEEXT) \
	tests/unit/test-tools-glob$(EXEEXT) \
	tests/unit/test-tools-grep$(EXEEXT) \
	tests/unit/test-tools-read$(EXEEXT) \
	tests/unit/test-tools-result$(EXEEXT) \
	tests/unit/test-tools-write$(EXEEXT) \
	tests/unit/test-utf8$(EXEEXT) \
	tests/unit/test-websocket$(EXEEXT) \
	tests/unit/test-wheel$(EXEEXT) \
	tests/unit/test-worker-box$(EXEEXT) \
	tests/unit/test-worker-ledger$(EXEEXT) \
	tests/unit/test-worker-memory$(EXEEXT) \
	tests/unit/test-worker-poll$(EXEEXT) \
	tests/unit/test-worker-serve$(EXEEXT) \
	tests/unit/test-worker-shell$(EXEEXT) \
	tests/unit/test-ws-command$(EXEEXT)

# On a database of a private PostgreSQL: skipped where MANGO_TEST_DATABASE_URL is not set.
# files: tests/store/test-*.c = {stem}$(EXEEXT)
store_tests = \
	tests/store/test-api-key$(EXEEXT) \
	tests/store/test-context-mark$(EXEEXT) \
	tests/store/test-embedded$(EXEEXT) \
	tests/store/test-migrate$(EXEEXT) \
	tests/store/test-node$(EXEEXT) \
	tests/store/test-notify$(EXEEXT) \
	tests/store/test-pg$(EXEEXT) \
	tests/store/test-pgtest$(EXEEXT) \
	tests/store/test-pooler$(EXEEXT) \
	tests/store/test-restart$(EXEEXT) \
	tests/store/test-sandbox-ends$(EXEEXT) \
	tests/store/test-sandbox$(EXEEXT) \
	tests/store/test-threads$(EXEEXT) \
	tests/store/test-turn$(EXEEXT)

# The parts of the backend `docker` that need no Engine.
check_LTLIBRARIES += tests/support/libdocker.la
tests_support_libdocker_la_SOURCES = plugins/docker/demux.c plugins/docker/endpoint.c plugins/docker/registry.c
tests_support_libdocker_la_CPPFLAGS = $(PLUGIN_CPPFLAGS)
tests_support_libdocker_la_LIBADD = plugins/common/libcommon.la
tests_unit_test_docker_CPPFLAGS = $(AM_CPPFLAGS) -I$(srcdir)/plugins
# A worker links no part of the server, and neither do its tests.
WORKER_LDADD = tests/support/libsupport.la libworker.la libcore.la $(CMOCKA_LIBS)
tests_unit_test_worker_box_LDADD = $(WORKER_LDADD)
tests_unit_test_worker_poll_LDADD = $(WORKER_LDADD)
tests_unit_test_worker_shell_LDADD = $(WORKER_LDADD)
tests_unit_test_docker_LDADD = tests/support/libdocker.la $(LDADD)

# What adapters of services share.
tests_unit_test_remote_socket_CPPFLAGS = $(tests_unit_test_remote_CPPFLAGS)
tests_unit_test_remote_socket_LDADD = $(tests_unit_test_remote_LDADD)
tests_unit_test_remote_CPPFLAGS = $(AM_CPPFLAGS) -I$(srcdir)/plugins -I$(srcdir)/plugin-api
tests_unit_test_remote_LDADD = plugins/common/libremote.la plugins/common/libcommon.la $(LDADD)
tests_unit_test_inside_CPPFLAGS = $(AM_CPPFLAGS) -I$(srcdir)/plugins -I$(srcdir)/plugin-api
tests_unit_test_inside_LDADD = plugins/common/libcommon.la $(LDADD)
tests_unit_test_connect_CPPFLAGS = $(AM_CPPFLAGS) -I$(srcdir)/plugins -I$(srcdir)/plugin-api
tests_unit_test_connect_LDADD = plugins/common/libenvd.la plugins/common/libremote.la plugins/common/libcommon.la $(LDADD)

# libmango from outside.
# files: tests/lib/test-*.c = {stem}$(EXEEXT)
lib_tests = \
	tests/lib/test-embed$(EXEEXT)

tests_lib_test_embed_LDADD = libmango.la $(LDADD)

# Real processes over real sockets. Python's standard library only.
# files: tests/e2e/test*.py tests/remote/test*.py tests/remote/run_referee.py tests/sdk/run*.py tests/lib/test*.sh tests/abi/test*.sh tests/abi/test*.py
e2e_tests = \
	tests/e2e/test_admission.py \
	tests/e2e/test_advisor.py \
	tests/e2e/test_backends.py \
	tests/e2e/test_bad_requests.py \
	tests/e2e/test_barriers.py \
	tests/e2e/test_budget.py \
	tests/e2e/test_cli.py \
	tests/e2e/test_content_files.py \
	tests/e2e/test_context.py \
	tests/e2e/test_contract.py \
	tests/e2e/test_crash_boundaries.py \
	tests/e2e/test_database.py \
	tests/e2e/test_deployments.py \
	tests/e2e/test_docker.py \
	tests/e2e/test_docker_chaos.py \
	tests/e2e/test_docker_conformance.py \
	tests/e2e/test_docker_cut.py \
	tests/e2e/test_docker_plain.py \
	tests/e2e/test_docker_remote.py \
	tests/e2e/test_docker_snapshots.py \
	tests/e2e/test_docs.py \
	tests/e2e/test_errand.py \
	tests/e2e/test_fencing.py \
	tests/e2e/test_files.py \
	tests/e2e/test_harness.py \
	tests/e2e/test_inline_agents.py \
	tests/e2e/test_interrupts.py \
	tests/e2e/test_launchers.py \
	tests/e2e/test_launchers_docker.py \
	tests/e2e/test_mcp.py \
	tests/e2e/test_memory.py \
	tests/e2e/test_memory_mounts.py \
	tests/e2e/test_memory_threads.py \
	tests/e2e/test_model_failures.py \
	tests/e2e/test_model_turns.py \
	tests/e2e/test_objects.py \
	tests/e2e/test_outcomes.py \
	tests/e2e/test_outputs.py \
	tests/e2e/test_plugin_services.py \
	tests/e2e/test_plugins_loaded.py \
	tests/e2e/test_race_checker.py \
	tests/e2e/test_races.py \
	tests/e2e/test_reconnect.py \
	tests/e2e/test_repositories.py \
	tests/e2e/test_resources.py \
	tests/e2e/test_retries.py \
	tests/e2e/test_runner_bundle.py \
	tests/e2e/test_sandbox_chaos.py \
	tests/e2e/test_sandboxes.py \
	tests/e2e/test_server_tools.py \
	tests/e2e/test_skills.py \
	tests/e2e/test_srt.py \
	tests/e2e/test_srt_chaos.py \
	tests/e2e/test_srt_limits.py \
	tests/e2e/test_streams.py \
	tests/e2e/test_threads.py \
	tests/e2e/test_threads_crash.py \
	tests/e2e/test_turn_rules.py \
	tests/e2e/test_turn_states.py \
	tests/e2e/test_two_nodes.py \
	tests/e2e/test_unit.py \
	tests/e2e/test_vaults.py \
	tests/e2e/test_waiting.py \
	tests/e2e/test_webhooks.py \
	tests/e2e/test_work.py \
	tests/e2e/test_work_chaos.py \
	tests/e2e/test_work_credentials.py \
	tests/e2e/test_worker.py \
	tests/e2e/test_worker_chaos.py \
	tests/e2e/test_worker_network.py \
	tests/e2e/test_worker_prepare.py \
	tests/lib/test-symbols.sh \
	tests/remote/run_referee.py \
	tests/remote/test_cube_conformance.py \
	tests/remote/test_daytona_conformance.py \
	tests/remote/test_daytona_service.py \
	tests/remote/test_e2b_conformance.py \
	tests/remote/test_envd_faults.py \
	tests/remote/test_envd_turn.py \
	tests/remote/test_opensandbox_conformance.py \
	tests/remote/test_opensandbox_service.py \
	tests/remote/test_ways.py \
	tests/sdk/run.py \
	tests/sdk/run_examples.py \
	tests/sdk/run_mcp.py \
	tests/sdk/run_official.py \
	tests/sdk/run_srt.py \
	tests/sdk/run_worker_cli.py \
	tests/sdk/run_worker_compare.py \
	tests/sdk/run_worker_prepare.py \
	tests/sdk/run_workers.py

# mangod with hooks that obey MANGO_TEST_HOOKS; the linker does not take hook-none from libcore then.
check_PROGRAMS += tests/mangod-test
tests_mangod_test_SOURCES = core/cmd/mangod.c core/base/hook-test.c
tests_mangod_test_LDADD = libcore.la

# A Messages endpoint for tests: tests/support/fake-model.c says how it is told what to answer.
check_PROGRAMS += tests/support/fake-model

# A sandbox plugin under direct control: tests/support/drive-sandbox.c says how.
check_PROGRAMS += tests/support/drive-sandbox

# A program over libmango-worker with tools of its own.
check_PROGRAMS += tests/support/drive-worker
tests_support_drive_worker_LDADD = libmango-worker.la -lpthread

if CMOCKA
check_PROGRAMS += $(unit_tests) $(store_tests) $(lib_tests)
TESTS += $(unit_tests) $(store_tests) $(lib_tests)
endif
TESTS += $(e2e_tests)

TEST_EXTENSIONS = .py .sh
PY_LOG_COMPILER = $(PYTHON3)
SH_LOG_COMPILER = bash
AM_TESTS_ENVIRONMENT = \
	MANGO_TEST_SRCDIR='$(abs_top_srcdir)'; export MANGO_TEST_SRCDIR; \
	MANGO_TEST_BUILDDIR='$(abs_top_builddir)'; export MANGO_TEST_BUILDDIR; \
	PYTHONDONTWRITEBYTECODE=1; export PYTHONDONTWRITEBYTECODE; \
	ASAN_OPTIONS=$${ASAN_OPTIONS:-detect_leaks=1:abort_on_error=0}; export ASAN_OPTIONS; \
	TSAN_OPTIONS=$${TSAN_OPTIONS:-halt_on_error=1:second_deadlock_stack=1:suppressions=$(abs_top_srcdir)/tests/support/tsan.suppress}; export TSAN_OPTIONS;

# Automake's rule with one PostgreSQL around the whole run; without a server the tests that need one are skipped and say so.
check-TESTS: $(check_PROGRAMS) $(check_LTLIBRARIES) $(check_SCRIPTS)
	@rm -f $(TEST_SUITE_LOG) $(TEST_LOGS) $(TEST_LOGS:.log=.trs)
	@$(srcdir)/tests/support/pg-run --optional $(MAKE) $(AM_MAKEFLAGS) $(TEST_SUITE_LOG)

check-local: check-sources
.PHONY: check-sources
check-sources:
	$(srcdir)/tests/lint/sources

# What the tests read.
# files: tests/e2e/* tests/remote/* tests/remote/*/* tests/lib/*.sh tests/abi/* tests/abi/*/* tests/sdk/* tests/sdk/*/* tests/unit/*.h tests/store/*.h tests/fixtures/* tests/fixtures/*/*
EXTRA_DIST += \
	tests/abi/abi-1.txt \
	tests/abi/layout.c \
	tests/abi/liar.c \
	tests/abi/limp.c \
	tests/abi/local-copy.h \
	tests/abi/network.c \
	tests/abi/second.c \
	tests/abi/smallest.c \
	tests/abi/still.h \
	tests/abi/variant.c \
	tests/e2e/api.py \
	tests/e2e/bad_requests.py \
	tests/e2e/demo \
	tests/e2e/docker_rig.py \
	tests/e2e/fallback_rig.py \
	tests/e2e/harness.py \
	tests/e2e/launcher_rig.py \
	tests/e2e/mcp_peer.py \
	tests/e2e/memory_paths.py \
	tests/e2e/outputs_rig.py \
	tests/e2e/race_checker.py \
	tests/e2e/recorder.py \
	tests/e2e/repository_rig.py \
	tests/e2e/rig.py \
	tests/e2e/sandbox.py \
	tests/e2e/sigv4.py \
	tests/e2e/srt_rig.py \
	tests/e2e/test_admission.py \
	tests/e2e/test_advisor.py \
	tests/e2e/test_backends.py \
	tests/e2e/test_bad_requests.py \
	tests/e2e/test_barriers.py \
	tests/e2e/test_budget.py \
	tests/e2e/test_cli.py \
	tests/e2e/test_content_files.py \
	tests/e2e/test_context.py \
	tests/e2e/test_contract.py \
	tests/e2e/test_crash_boundaries.py \
	tests/e2e/test_database.py \
	tests/e2e/test_deployments.py \
	tests/e2e/test_docker.py \
	tests/e2e/test_docker_chaos.py \
	tests/e2e/test_docker_conformance.py \
	tests/e2e/test_docker_cut.py \
	tests/e2e/test_docker_plain.py \
	tests/e2e/test_docker_remote.py \
	tests/e2e/test_docker_snapshots.py \
	tests/e2e/test_docs.py \
	tests/e2e/test_errand.py \
	tests/e2e/test_fencing.py \
	tests/e2e/test_files.py \
	tests/e2e/test_harness.py \
	tests/e2e/test_inline_agents.py \
	tests/e2e/test_interrupts.py \
	tests/e2e/test_launchers.py \
	tests/e2e/test_launchers_docker.py \
	tests/e2e/test_mcp.py \
	tests/e2e/test_memory.py \
	tests/e2e/test_memory_mounts.py \
	tests/e2e/test_memory_threads.py \
	tests/e2e/test_model_failures.py \
	tests/e2e/test_model_turns.py \
	tests/e2e/test_objects.py \
	tests/e2e/test_outcomes.py \
	tests/e2e/test_outputs.py \
	tests/e2e/test_plugin_services.py \
	tests/e2e/test_plugins_loaded.py \
	tests/e2e/test_race_checker.py \
	tests/e2e/test_races.py \
	tests/e2e/test_reconnect.py \
	tests/e2e/test_repositories.py \
	tests/e2e/test_resources.py \
	tests/e2e/test_retries.py \
	tests/e2e/test_runner_bundle.py \
	tests/e2e/test_sandbox_chaos.py \
	tests/e2e/test_sandboxes.py \
	tests/e2e/test_server_tools.py \
	tests/e2e/test_skills.py \
	tests/e2e/test_srt.py \
	tests/e2e/test_srt_chaos.py \
	tests/e2e/test_srt_limits.py \
	tests/e2e/test_streams.py \
	tests/e2e/test_threads.py \
	tests/e2e/test_threads_crash.py \
	tests/e2e/test_turn_rules.py \
	tests/e2e/test_turn_states.py \
	tests/e2e/test_two_nodes.py \
	tests/e2e/test_unit.py \
	tests/e2e/test_vaults.py \
	tests/e2e/test_waiting.py \
	tests/e2e/test_webhooks.py \
	tests/e2e/test_work.py \
	tests/e2e/test_work_chaos.py \
	tests/e2e/test_work_credentials.py \
	tests/e2e/test_worker.py \
	tests/e2e/test_worker_chaos.py \
	tests/e2e/test_worker_network.py \
	tests/e2e/test_worker_prepare.py \
	tests/e2e/threads.py \
	tests/e2e/turns.py \
	tests/e2e/vault_rig.py \
	tests/e2e/webhook_rig.py \
	tests/e2e/work_rig.py \
	tests/e2e/worker_rig.py \
	tests/e2e/ws.py \
	tests/fixtures/bad-requests.json \
	tests/lib/test-symbols.sh \
	tests/remote/container_bench.mjs \
	tests/remote/container_services.py \
	tests/remote/daytona_sdk_check.mjs \
	tests/remote/dtn.py \
	tests/remote/e2b_bench.mjs \
	tests/remote/e2b_referee.mjs \
	tests/remote/e2b_sdk_check.mjs \
	tests/remote/envd_box.mjs \
	tests/remote/envd_peer.mjs \
	tests/remote/envd_rig.py \
	tests/remote/envd_server.mjs \
	tests/remote/fault_proxy.py \
	tests/remote/opensandbox_sdk_check.mjs \
	tests/remote/osb.py \
	tests/remote/referee/cube.txt \
	tests/remote/referee/daytona.txt \
	tests/remote/referee/e2b.txt \
	tests/remote/referee/opensandbox.txt \
	tests/remote/referee_containers.py \
	tests/remote/referee_envd.py \
	tests/remote/rig.py \
	tests/remote/run_referee.py \
	tests/remote/standin/daytona_api.go \
	tests/remote/standin/daytona_daemon.go \
	tests/remote/standin/daytona_pty.go \
	tests/remote/standin/egress.go \
	tests/remote/standin/execd.go \
	tests/remote/standin/go.mod \
	tests/remote/standin/main.go \
	tests/remote/test_cube_conformance.py \
	tests/remote/test_daytona_conformance.py \
	tests/remote/test_daytona_service.py \
	tests/remote/test_e2b_conformance.py \
	tests/remote/test_envd_faults.py \
	tests/remote/test_envd_turn.py \
	tests/remote/test_opensandbox_conformance.py \
	tests/remote/test_opensandbox_service.py \
	tests/remote/test_ways.py \
	tests/sdk/checks.mjs \
	tests/sdk/checks.py \
	tests/sdk/examples/examples.mjs \
	tests/sdk/examples/official.json \
	tests/sdk/examples/package.json \
	tests/sdk/files.mjs \
	tests/sdk/go/every.go \
	tests/sdk/go/go.mod \
	tests/sdk/go/go.sum \
	tests/sdk/go/main.go \
	tests/sdk/go/resources.go \
	tests/sdk/go/webhooks.go \
	tests/sdk/go_tool.py \
	tests/sdk/mcp/package.json \
	tests/sdk/mcp/server.mjs \
	tests/sdk/package.json \
	tests/sdk/python_sdk.py \
	tests/sdk/resources.mjs \
	tests/sdk/resources.py \
	tests/sdk/run.py \
	tests/sdk/run_examples.py \
	tests/sdk/run_mcp.py \
	tests/sdk/run_official.py \
	tests/sdk/run_srt.py \
	tests/sdk/run_worker_cli.py \
	tests/sdk/run_worker_compare.py \
	tests/sdk/run_worker_prepare.py \
	tests/sdk/run_workers.py \
	tests/sdk/sdk_rig.py \
	tests/sdk/srt/package.json \
	tests/sdk/threads.mjs \
	tests/sdk/typescript.mjs \
	tests/sdk/webhooks.mjs \
	tests/sdk/webhooks.py \
	tests/sdk/worker.mjs \
	tests/sdk/worker.py \
	tests/sdk/ws_resume.mjs \
	tests/sdk/ws_resume.py \
	tests/unit/domain.h \
	tests/unit/unit.h

dist_noinst_SCRIPTS += tests/support/net-peer.py tests/support/pg-run tests/support/summary tests/lint/banned tests/lint/c-files tests/lint/docs-check \
	tests/lint/layers tests/lint/run-all tests/lint/sources
EXTRA_DIST += tests/lint/cppcheck.suppress tests/support/tsan.suppress

# The tests of one remote backend, with what they need started: make check-remote BACKEND=e2b
.PHONY: check-remote
check-remote:
	@test -n "$(BACKEND)" || { echo "usage: make check-remote BACKEND=e2b|cube|opensandbox|daytona" >&2; exit 2; }
	@case $(BACKEND) in e2b|cube) more='tests/remote/test_envd*.py';; esac; \
	tests=`cd $(srcdir) && ls tests/remote/test_$(BACKEND)*.py $$more`; test -n "$$tests" && \
	MANGO_TEST_SDK=$${MANGO_TEST_SDK:-require} $(MAKE) --no-print-directory check TESTS="`echo $$tests`"
	@$(AM_TESTS_ENVIRONMENT) MANGO_TEST_SDK=$${MANGO_TEST_SDK:-require} $(PYTHON3) $(srcdir)/tests/remote/run_referee.py $(BACKEND)

.PHONY: lint format
# Findings of any of these fail. Each prints one line when it is content.
lint:
	$(srcdir)/tests/lint/run-all

format:
	cd $(srcdir) && $(CLANG_FORMAT) -i $$(tests/lint/c-files)
include tests/fuzz/fuzz.mk
include tests/bench/bench.mk

# What tests/unit/test-plugin builds by hand, and the layout that ABI 1 promised.
# files: tests/abi/*.c tests/abi/*.txt
dist_noinst_DATA += \
	tests/abi/abi-1.txt \
	tests/abi/layout.c \
	tests/abi/liar.c \
	tests/abi/limp.c \
	tests/abi/network.c \
	tests/abi/second.c \
	tests/abi/smallest.c \
	tests/abi/variant.c
