"""The official Python SDK against mangod, with nothing changed but the base URL and the key.

MANGO_BASE_URL and MANGO_API_KEY name the server. One line per check, a count at the end, status 1 when one failed.
"""

import os
import time

import anthropic
from checks import Checks

BASE_URL = os.environ["MANGO_BASE_URL"]
KEY = os.environ["MANGO_API_KEY"]
client = anthropic.Anthropic(base_url=BASE_URL, api_key=KEY)
beta = client.beta
state = {}
checks = Checks()


def text(t):
    return {"type": "user.message", "content": [{"type": "text", "text": t}]}


def until_idle(session_id, send):
    seen = []
    with beta.sessions.events.stream(session_id) as stream:
        send()
        for event in stream:
            seen.append(event)
            if event.type in ("session.status_idle", "session.status_terminated"):
                break
    return seen


@checks.check
def agent_create_update_versions():
    agent = beta.agents.create(name="py agent", model="claude-sonnet-4-5", tools=[{"type": "agent_toolset_20260401"}])
    assert agent.id.startswith("agent_") and agent.version == 1
    agent = beta.agents.update(agent.id, version=1, description="changed")
    assert agent.version == 2
    assert {v.version for v in beta.agents.versions.list(agent.id)} == {1, 2}
    assert agent.id in [a.id for a in beta.agents.list(limit=2)]
    state["agent"] = agent


@checks.check
def environment_create_update_list():
    env = beta.environments.create(name=f"py {time.time()}", config={"type": "cloud", "networking": {"type": "unrestricted"}})
    env = beta.environments.update(env.id, description="d")
    assert env.description == "d"
    assert env.id in [e.id for e in beta.environments.list(limit=2)]
    state["env"] = env


@checks.check
def session_runs_bash_and_streams_until_idle():
    session = beta.sessions.create(agent=state["agent"].id, environment_id=state["env"].id, title="py")
    assert session.status == "idle"
    seen = until_idle(session.id, lambda: beta.sessions.events.send(session.id, events=[text("run: echo from-the-sandbox")]))
    types = [e.type for e in seen]
    assert "agent.tool_use" in types and "agent.tool_result" in types, types
    result = next(e for e in seen if e.type == "agent.tool_result")
    assert "from-the-sandbox" in result.content[0].text
    assert seen[-1].stop_reason.type == "end_turn"
    state["session"] = session


@checks.check
def events_list_pages_in_both_orders():
    sid = state["session"].id
    everything = [e.id for e in beta.sessions.events.list(sid)]
    assert everything and everything == [e.id for e in beta.sessions.events.list(sid, limit=2)]
    assert everything[::-1] == [e.id for e in beta.sessions.events.list(sid, limit=3, order="desc")]
    assert [e.type for e in beta.sessions.events.list(sid, types=["agent.tool_use"])] == ["agent.tool_use"]


@checks.check
def sessions_list_update_archive_delete():
    made = [beta.sessions.create(agent=state["agent"].id, environment_id=state["env"].id).id for _ in range(3)]
    listed = [s.id for s in beta.sessions.list(agent_id=state["agent"].id, limit=2)]
    assert set(made) <= set(listed)
    assert beta.sessions.update(made[0], title="new").title == "new"
    assert beta.sessions.archive(made[0]).archived_at
    for sid in made:
        assert beta.sessions.delete(sid).type == "session_deleted"
    try:
        beta.sessions.retrieve(made[0])
        raise AssertionError("a deleted session is still there")
    except anthropic.NotFoundError as err:
        assert err.body["error"]["type"] == "not_found_error"


@checks.check
def errors_have_their_classes():
    def refused(cls, status, fn):
        try:
            fn()
        except cls as err:
            assert err.status_code == status and err.request_id.startswith("req_"), err
            return
        raise AssertionError(f"{cls.__name__} expected")

    refused(anthropic.BadRequestError, 400, lambda: beta.agents.create(name="", model="m"))
    refused(anthropic.NotFoundError, 404, lambda: beta.agents.retrieve("agent_missing"))
    refused(anthropic.ConflictError, 409, lambda: beta.agents.update(state["agent"].id, version=1, name="stale"))
    bad = anthropic.Anthropic(base_url=BASE_URL, api_key="mango_wrong", max_retries=0)
    refused(anthropic.AuthenticationError, 401, lambda: bad.beta.agents.list())


@checks.check
def deleting_ends_an_open_stream():
    session = beta.sessions.create(agent=state["agent"].id, environment_id=state["env"].id)
    with beta.sessions.events.stream(session.id) as stream:
        beta.sessions.delete(session.id)
        assert [e.type for e in stream][-1] == "session.deleted"


@checks.check
def files_upload_list_download_delete():
    data = b"mango " * 50000
    made = [beta.files.upload(file=(f"é {i}.txt", data, "text/plain")) for i in range(3)]
    assert made[0].filename == "é 0.txt" and made[0].size_bytes == len(data) and made[0].mime_type == "text/plain"
    assert beta.files.retrieve_metadata(made[0].id).id == made[0].id
    assert beta.files.download(made[0].id).read() == data
    ids = [f.id for f in made]
    assert [f.id for f in beta.files.list(limit=2) if f.id in ids] == ids[::-1]
    for i in ids:
        assert beta.files.delete(i).id == i


@checks.check
def skills_create_versions_download_delete():
    def bundle(words):
        head = f"---\nname: greeting\ndescription: {words}\n---\nSay hello.\n".encode()
        return [("greeting/SKILL.md", head), ("greeting/data/x.txt", b"data")]

    skill = beta.skills.create(files=bundle("One."))
    second = beta.skills.versions.create(skill.id, files=bundle("Two."))
    versions = list(beta.skills.versions.list(skill.id, limit=1))
    assert [v.id for v in versions][0] == second.id and len(versions) == 2
    first = beta.skills.versions.retrieve(versions[1].id, skill_id=skill.id)
    assert first.name == "greeting" and first.description == "One."
    assert skill.id in [s.id for s in beta.skills.list(limit=1)]
    if hasattr(beta.skills.versions, "download"):
        assert beta.skills.versions.download(first.id, skill_id=skill.id).read()[:4] == b"PK\x03\x04"
    for v in (first, second):
        beta.skills.versions.delete(v.id, skill_id=skill.id)
    assert beta.skills.delete(skill.id).id == skill.id


checks.finish()
