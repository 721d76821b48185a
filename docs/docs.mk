# files: docs/*.md docs/*/*.md README.md CHANGELOG.md CONTRIBUTING.md
dist_doc_DATA += \
	CHANGELOG.md \
	CONTRIBUTING.md \
	README.md \
	docs/adapters/cube.md \
	docs/adapters/daytona.md \
	docs/adapters/docker.md \
	docs/adapters/e2b.md \
	docs/adapters/launcher-docker.md \
	docs/adapters/launcher-process.md \
	docs/adapters/local.md \
	docs/adapters/opensandbox.md \
	docs/adapters/srt.md \
	docs/api.md \
	docs/architecture.md \
	docs/dependencies.md \
	docs/operating.md \
	docs/performance.md \
	docs/plugins.md \
	docs/security.md \
	docs/semantics.md \
	docs/workers.md
