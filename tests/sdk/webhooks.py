"""The official Python SDK's own verifier on notices that mangod sent. MANGO_NOTICES names their file."""
import json
import os

import anthropic
from checks import Checks

with open(os.environ["MANGO_NOTICES"], encoding="utf-8") as f:
    GIVEN = json.load(f)
SECRET, NOTICES = GIVEN["secret"], GIVEN["notices"]
webhooks = anthropic.Anthropic(api_key="unused").beta.webhooks
checks = Checks()


def unwrap_takes_every_notice():
    assert len(NOTICES) >= 4
    for n in NOTICES:
        event = webhooks.unwrap(n["raw"], headers=n["headers"], key=SECRET)
        assert type(event).__name__ == "BetaWebhookEvent", event
        assert type(event.data).__name__.startswith("BetaWebhook"), "the SDK knows the type"
        assert (event.type, event.id) == ("event", n["headers"]["webhook-id"]), event
        assert event.data.id and event.data.organization_id and event.data.workspace_id, event


def unwrap_refuses_another_body_and_another_key():
    n = NOTICES[0]
    for raw, key in ((n["raw"].replace('"event"', '"Event"'), SECRET), (n["raw"], "whsec_" + "A" * 43 + "=")):
        try:
            webhooks.unwrap(raw, headers=n["headers"], key=key)
        except Exception as e:
            assert "signature" in str(e).lower(), e
        else:
            raise AssertionError("it was taken")


checks.check(unwrap_takes_every_notice)
checks.check(unwrap_refuses_another_body_and_another_key)
checks.finish()
