-- Webhooks: who is told of what, what there was to tell, and who has been told.
--
-- Notices are written by triggers, in the transaction of what they tell, so that no way of changing a row can forget them. The triggers are disabled
-- while no webhook is active: core/store/webhook.c enables them before it makes one. Without webhooks a turn costs no statement and no call more.

CREATE TABLE webhooks (
    id           text COLLATE "C" PRIMARY KEY,
    workspace_id text COLLATE "C" NOT NULL REFERENCES workspaces,
    url          text NOT NULL,
    event_types  text[] NOT NULL CHECK (cardinality(event_types) BETWEEN 1 AND 64),
    key_id       text COLLATE "C" NOT NULL,           -- of the keyring's key that sealed:
    secret       text COLLATE "C" NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    disabled_at  timestamptz
);

CREATE TABLE webhook_events (
    seq               bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id                text COLLATE "C" NOT NULL UNIQUE DEFAULT 'wevt_' || replace(gen_random_uuid()::text, '-', ''),
    workspace_id      text COLLATE "C" NOT NULL,
    type              text COLLATE "C" NOT NULL,
    subject           text COLLATE "C" NOT NULL,      -- the id of what it is about, which may be gone
    session_thread_id text COLLATE "C",
    vault_id          text COLLATE "C",
    once_for          text COLLATE "C",               -- told once for this: a budget that was reached
    created_at        timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX webhook_events_age ON webhook_events (created_at);
CREATE INDEX webhook_events_once ON webhook_events (subject, type, once_for) WHERE once_for IS NOT NULL;

-- No reference to webhooks: it would lock one row for every event. What a removed webhook leaves is never sent, and goes with the event.
CREATE TABLE webhook_deliveries (
    webhook_id  text COLLATE "C" NOT NULL,
    event_seq   bigint NOT NULL REFERENCES webhook_events ON DELETE CASCADE,
    subject     text COLLATE "C" NOT NULL,            -- one after the other for each of these
    state       text COLLATE "C" NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'delivered', 'failed')),
    tries       integer NOT NULL DEFAULT 0,
    due_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    claim       text COLLATE "C",                     -- of the node that sends it, until:
    claim_until timestamptz,
    last_error  text,
    done_at     timestamptz,
    PRIMARY KEY (webhook_id, event_seq),
    CHECK ((state = 'pending') = (done_at IS NULL))
);
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (due_at) WHERE state = 'pending';
CREATE INDEX webhook_deliveries_order ON webhook_deliveries (webhook_id, subject, event_seq) WHERE state = 'pending';
CREATE INDEX webhook_deliveries_event ON webhook_deliveries (event_seq);

ALTER TABLE vault_credentials ADD COLUMN refresh_failed_at timestamptz; -- the token endpoint refused the refresh token

-- One notice for every active webhook of the workspace that wants it; nothing when none does.
CREATE FUNCTION mango_webhook_tell(workspace text, what text, about text, thread text DEFAULT NULL, vault text DEFAULT NULL, once text DEFAULT NULL)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    event bigint;
BEGIN
    IF NOT EXISTS (SELECT FROM webhooks w WHERE w.workspace_id = workspace AND w.disabled_at IS NULL AND what = ANY (w.event_types))
       OR (once IS NOT NULL AND EXISTS (SELECT FROM webhook_events e WHERE e.subject = about AND e.type = what AND e.once_for = once)) THEN
        RETURN;
    END IF;
    INSERT INTO webhook_events (workspace_id, type, subject, session_thread_id, vault_id, once_for)
        VALUES (workspace, what, about, thread, vault, once) RETURNING seq INTO event;
    INSERT INTO webhook_deliveries (webhook_id, event_seq, subject)
        SELECT w.id, event, about FROM webhooks w WHERE w.workspace_id = workspace AND w.disabled_at IS NULL AND what = ANY (w.event_types);
END $$;

-- Events of a session's primary log, in their order.
CREATE FUNCTION mango_webhook_events() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    e record;
    why text;
BEGIN
    FOR e IN
        SELECT n.type, n.body, n.session_id, s.workspace_id FROM added n JOIN sessions s ON s.id = n.session_id
         WHERE n.thread_id IS NULL AND n.type IN ('session.status_running', 'session.status_idle', 'session.status_rescheduled',
               'session.status_terminated', 'session.updated', 'session.thread_created', 'session.thread_status_idle',
               'session.thread_status_terminated', 'span.outcome_evaluation_end')
         ORDER BY n.seq
    LOOP
        CASE e.type
        WHEN 'session.status_running' THEN
            PERFORM mango_webhook_tell(e.workspace_id, 'session.running', e.session_id);
            PERFORM mango_webhook_tell(e.workspace_id, 'session.status_run_started', e.session_id);
        WHEN 'session.status_idle' THEN
            why := e.body::json -> 'stop_reason' ->> 'type';
            PERFORM mango_webhook_tell(e.workspace_id, 'session.idled', e.session_id);
            PERFORM mango_webhook_tell(e.workspace_id, 'session.status_idled', e.session_id);
            IF why = 'requires_action' THEN
                PERFORM mango_webhook_tell(e.workspace_id, 'session.requires_action', e.session_id);
            ELSIF why = 'budget_reached' THEN
                PERFORM mango_webhook_tell(e.workspace_id, 'session.budget_reached', e.session_id, NULL, NULL,
                    (SELECT st.budget_nano::text FROM session_state st WHERE st.session_id = e.session_id));
            END IF;
        WHEN 'session.status_rescheduled', 'session.status_terminated', 'session.updated' THEN
            PERFORM mango_webhook_tell(e.workspace_id, e.type, e.session_id);
        WHEN 'span.outcome_evaluation_end' THEN
            PERFORM mango_webhook_tell(e.workspace_id, 'session.outcome_evaluation_ended', e.session_id);
        ELSE
            PERFORM mango_webhook_tell(e.workspace_id, CASE e.type WHEN 'session.thread_status_idle' THEN 'session.thread_idled'
                WHEN 'session.thread_status_terminated' THEN 'session.thread_terminated' ELSE e.type END,
                e.session_id, e.body::json ->> 'session_thread_id');
        END CASE;
    END LOOP;
    RETURN NULL;
END $$;
CREATE TRIGGER mango_webhook AFTER INSERT ON events REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION mango_webhook_events();

-- TG_ARGV[0]: what the types of the table begin with.
CREATE FUNCTION mango_webhook_row() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    kind text := TG_ARGV[0];
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM mango_webhook_tell(NEW.workspace_id, kind || '.created', NEW.id);
        IF kind = 'session' THEN
            PERFORM mango_webhook_tell(NEW.workspace_id, 'session.pending', NEW.id);
        END IF;
    ELSIF TG_OP = 'DELETE' THEN
        PERFORM mango_webhook_tell(OLD.workspace_id, kind || '.deleted', OLD.id);
    ELSIF OLD.archived_at IS NULL AND NEW.archived_at IS NOT NULL THEN
        PERFORM mango_webhook_tell(NEW.workspace_id, kind || '.archived', NEW.id);
    ELSIF kind IN ('agent', 'environment') THEN
        PERFORM mango_webhook_tell(NEW.workspace_id, kind || '.updated', NEW.id);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER mango_webhook AFTER INSERT OR UPDATE OR DELETE ON agents
    FOR EACH ROW EXECUTE FUNCTION mango_webhook_row('agent');
CREATE TRIGGER mango_webhook AFTER INSERT OR UPDATE OR DELETE ON environments
    FOR EACH ROW EXECUTE FUNCTION mango_webhook_row('environment');
CREATE TRIGGER mango_webhook AFTER INSERT OR UPDATE OF archived_at OR DELETE ON memory_stores
    FOR EACH ROW EXECUTE FUNCTION mango_webhook_row('memory_store');
CREATE TRIGGER mango_webhook AFTER INSERT OR UPDATE OF archived_at ON sessions
    FOR EACH ROW EXECUTE FUNCTION mango_webhook_row('session');
CREATE TRIGGER mango_webhook AFTER INSERT OR UPDATE OF archived_at OR DELETE ON vaults
    FOR EACH ROW EXECUTE FUNCTION mango_webhook_row('vault');

-- A session is deleted for its clients when this is set; its rows go later.
CREATE FUNCTION mango_webhook_session_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM mango_webhook_tell(s.workspace_id, 'session.deleted', s.id) FROM sessions s WHERE s.id = NEW.session_id;
    RETURN NULL;
END $$;
CREATE TRIGGER mango_webhook AFTER UPDATE OF deleting_at ON session_state
    FOR EACH ROW WHEN (OLD.deleting_at IS NULL AND NEW.deleting_at IS NOT NULL) EXECUTE FUNCTION mango_webhook_session_deleted();

-- The scheduler's own columns are no update.
CREATE FUNCTION mango_webhook_deployment() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM mango_webhook_tell(NEW.workspace_id, 'deployment.created', NEW.id);
    ELSIF TG_OP = 'DELETE' THEN
        PERFORM mango_webhook_tell(OLD.workspace_id, 'deployment.deleted', OLD.id);
    ELSIF OLD.archived_at IS NULL AND NEW.archived_at IS NOT NULL THEN
        PERFORM mango_webhook_tell(NEW.workspace_id, 'deployment.archived', NEW.id);
    ELSE
        IF (NEW.name, NEW.description, NEW.agent_id, NEW.agent_version, NEW.environment_id, NEW.initial_events, NEW.resources, NEW.vault_ids,
            NEW.metadata, NEW.budget, NEW.expression, NEW.timezone)
           IS DISTINCT FROM (OLD.name, OLD.description, OLD.agent_id, OLD.agent_version, OLD.environment_id, OLD.initial_events, OLD.resources,
            OLD.vault_ids, OLD.metadata, OLD.budget, OLD.expression, OLD.timezone) THEN
            PERFORM mango_webhook_tell(NEW.workspace_id, 'deployment.updated', NEW.id);
        END IF;
        IF OLD.paused_reason IS NULL AND NEW.paused_reason IS NOT NULL THEN
            PERFORM mango_webhook_tell(NEW.workspace_id, 'deployment.paused', NEW.id);
        ELSIF OLD.paused_reason IS NOT NULL AND NEW.paused_reason IS NULL THEN
            PERFORM mango_webhook_tell(NEW.workspace_id, 'deployment.unpaused', NEW.id);
        END IF;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER mango_webhook AFTER INSERT OR UPDATE OR DELETE ON deployments
    FOR EACH ROW EXECUTE FUNCTION mango_webhook_deployment();

-- A run and how it went are one row of one transaction.
CREATE FUNCTION mango_webhook_run() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM mango_webhook_tell(NEW.workspace_id, 'deployment_run.started', NEW.id);
    PERFORM mango_webhook_tell(NEW.workspace_id, 'deployment_run.' || CASE WHEN NEW.error_type IS NULL THEN 'succeeded' ELSE 'failed' END, NEW.id);
    RETURN NULL;
END $$;
CREATE TRIGGER mango_webhook AFTER INSERT ON deployment_runs FOR EACH ROW EXECUTE FUNCTION mango_webhook_run();

-- Credentials that go with their vault are told of before it is gone: afterwards nobody knows whose they were.
CREATE FUNCTION mango_webhook_credential() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    x record;
    what text := CASE TG_OP WHEN 'INSERT' THEN 'created' WHEN 'DELETE' THEN 'deleted' END;
BEGIN
    IF TG_OP = 'DELETE' THEN
        x := OLD;
    ELSE
        x := NEW;
    END IF;
    IF TG_OP = 'UPDATE' AND OLD.archived_at IS NULL AND NEW.archived_at IS NOT NULL THEN
        what := 'archived';
    ELSIF TG_OP = 'UPDATE' AND NEW.refresh_failed_at IS DISTINCT FROM OLD.refresh_failed_at AND NEW.refresh_failed_at IS NOT NULL THEN
        what := 'refresh_failed';
    END IF;
    PERFORM mango_webhook_tell(v.workspace_id, 'vault_credential.' || what, x.id, NULL, v.id) FROM vaults v WHERE v.id = x.vault_id AND what IS NOT NULL;
    RETURN NULL;
END $$;
CREATE TRIGGER mango_webhook AFTER INSERT OR UPDATE OF archived_at, refresh_failed_at OR DELETE ON vault_credentials
    FOR EACH ROW EXECUTE FUNCTION mango_webhook_credential();
CREATE FUNCTION mango_webhook_vault_going() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM mango_webhook_tell(OLD.workspace_id, 'vault_credential.deleted', c.id, NULL, OLD.id)
       FROM vault_credentials c WHERE c.vault_id = OLD.id ORDER BY c.id;
    RETURN OLD;
END $$;
CREATE TRIGGER mango_webhook_before BEFORE DELETE ON vaults FOR EACH ROW EXECUTE FUNCTION mango_webhook_vault_going();

ALTER TABLE agents DISABLE TRIGGER mango_webhook;
ALTER TABLE deployment_runs DISABLE TRIGGER mango_webhook;
ALTER TABLE deployments DISABLE TRIGGER mango_webhook;
ALTER TABLE environments DISABLE TRIGGER mango_webhook;
ALTER TABLE events DISABLE TRIGGER mango_webhook;
ALTER TABLE memory_stores DISABLE TRIGGER mango_webhook;
ALTER TABLE session_state DISABLE TRIGGER mango_webhook;
ALTER TABLE sessions DISABLE TRIGGER mango_webhook;
ALTER TABLE vault_credentials DISABLE TRIGGER mango_webhook;
ALTER TABLE vaults DISABLE TRIGGER mango_webhook;
ALTER TABLE vaults DISABLE TRIGGER mango_webhook_before;
