# files: docs/*.md docs/*/*.md README.md
dist_doc_DATA += \
	README.md \
	docs/adapters/local.md \
	docs/api.md \
	docs/architecture.md \
	docs/dependencies.md \
	docs/operating.md \
	docs/performance.md \
	docs/plugins.md \
	docs/security.md
