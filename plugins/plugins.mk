# Adapters. One folder and one NAME.so each; they link against no symbol of the core.
PLUGIN_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version -shared -Wl,-z,now $(PLUGIN_DEFS)

include plugins/local/local.mk

# The plugins as the loader wants them: NAME.so in one folder. For running and testing from the build tree.
plugins/loadable: $(plugin_LTLIBRARIES) $(pkglibexec_PROGRAMS)
	$(AM_V_GEN)rm -rf $@.new && mkdir -p $@.new && \
	for p in $(pkglibexec_PROGRAMS); do cp $$p $@.new/ || exit 1; done && \
	for la in $(plugin_LTLIBRARIES); do \
		name=`basename $$la .la` && cp `dirname $$la`/.libs/$$name.so $@.new/ && chmod 755 $@.new/$$name.so || exit 1; \
	done && rm -rf $@ && mv $@.new $@

clean-local: clean-plugins
.PHONY: clean-plugins
clean-plugins:
	rm -rf plugins/loadable plugins/loadable.new
