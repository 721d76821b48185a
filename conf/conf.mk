# The commented configuration goes to $(sysconfdir)/mango/mango.conf, but never over one that is there.
dist_doc_DATA += conf/mango.conf
dist_pkgdata_DATA = conf/prices.conf
systemdsystemunit_DATA = conf/mangod.service
# What a sandbox backend needs beyond the unit.
dropindir = $(pkgdatadir)/systemd
dist_dropin_DATA = conf/systemd/docker.conf conf/systemd/srt-root.conf conf/systemd/srt.conf

SUBSTITUTE = $(SED) -e 's,@bindir\@,$(bindir),g' -e 's,@mangoconfdir\@,$(mangoconfdir),g'
conf/mangod.service: conf/mangod.service.in Makefile
	$(AM_V_GEN)$(MKDIR_P) conf && $(SUBSTITUTE) $(srcdir)/conf/mangod.service.in > $@.new && mv $@.new $@

EXTRA_DIST += conf/mangod.service.in
CLEANFILES += conf/mangod.service

.PHONY: install-conf uninstall-conf
install-conf:
	$(MKDIR_P) "$(DESTDIR)$(mangoconfdir)"
	test -f "$(DESTDIR)$(mangoconfdir)/mango.conf" || \
		$(INSTALL_DATA) $(srcdir)/conf/mango.conf "$(DESTDIR)$(mangoconfdir)/mango.conf"

# A configuration that was edited stays.
uninstall-conf:
	! cmp -s $(srcdir)/conf/mango.conf "$(DESTDIR)$(mangoconfdir)/mango.conf" || \
		rm -f "$(DESTDIR)$(mangoconfdir)/mango.conf"
