# Applied in order by mangod and `mango migrate`; never changed once released (their checksums are recorded).
migrationsdir = $(pkgdatadir)/migrations
# files: migrations/*.sql
dist_migrations_DATA = \
	migrations/0001_foundation.sql \
	migrations/0002_threads.sql \
	migrations/0003_context.sql \
	migrations/0004_mcp_tools.sql \
	migrations/0005_budgets.sql \
	migrations/0006_waiting.sql \
	migrations/0007_thread_names.sql \
	migrations/0008_node_backends.sql \
	migrations/0009_outcomes.sql \
	migrations/0010_own_turns.sql \
	migrations/0011_work.sql \
	migrations/0012_one_budget.sql \
	migrations/0013_vaults.sql \
	migrations/0014_files.sql \
	migrations/0015_memory.sql \
	migrations/0016_resources.sql \
	migrations/0017_deployments.sql \
	migrations/0018_skills.sql \
	migrations/0019_session_memory.sql \
	migrations/0020_session_memories.sql \
	migrations/0021_webhooks.sql \
	migrations/0022_session_files.sql \
	migrations/0023_session_outputs.sql \
	migrations/0024_webhooks_changed.sql \
	migrations/0025_work_indexes.sql \
	migrations/0026_repositories.sql \
	migrations/0027_deployment_tokens.sql \
	migrations/0028_outcomes_shown.sql
