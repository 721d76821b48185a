# files: docs/*.md docs/*/*.md README.md
dist_doc_DATA +=
