-- Nodes look for notices to send only while a webhook is active: each is told, when the change is committed, that this may be so from now on or no more.
-- The payload is core/events/notify.h's.

CREATE FUNCTION mango_tell_webhooks_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('mango_events', '- webhook:1');
    RETURN NULL;
END $$;
CREATE TRIGGER mango_tell_changed AFTER INSERT OR UPDATE OR DELETE ON webhooks
    FOR EACH STATEMENT EXECUTE FUNCTION mango_tell_webhooks_changed();
