"""Every method of files, skills, session resources, vaults, memory stores and deployments of the official Python SDK, with nothing changed but the base URL and the key.

MANGO_BASE_URL and MANGO_API_KEY name the server, which has a keyring. One line per check, a count at the end, status 1 when one failed.
"""

import hashlib
import os
import time

import anthropic
from checks import Checks

beta = anthropic.Anthropic(base_url=os.environ["MANGO_BASE_URL"], api_key=os.environ["MANGO_API_KEY"]).beta
checks = Checks(" resources")
state = {}
RESOURCES = [
    "files", "skills", "skills.versions", "sessions.resources", "vaults", "vaults.credentials", "memory_stores", "memory_stores.memories",
    "memory_stores.memory_versions", "deployments", "deployment_runs",
]  # fmt: skip
left = set()  # methods that nothing has called yet


def watch(path):
    """Each method of the resource leaves `left` when it is called."""
    resource = beta
    for word in path.split("."):
        resource = getattr(resource, word)
    for name in vars(type(resource)):
        method = getattr(type(resource), name)
        if name.startswith("_") or name.startswith("with_") or not callable(method):
            continue
        left.add(f"{path}.{name}")

        def called(*args, _name=f"{path}.{name}", _bound=getattr(resource, name), **more):
            left.discard(_name)
            return _bound(*args, **more)

        setattr(resource, name, called)


for path in RESOURCES:
    watch(path)


def refused(status, words, fn, *args, **more):
    try:
        fn(*args, **more)
    except anthropic.APIStatusError as e:
        assert e.status_code == status and words in str(e), e
    else:
        raise AssertionError("it was taken")


def sha(text):
    return hashlib.sha256(text.encode()).hexdigest()


@checks.check
def files_and_session_resources():
    data = b"mango " * 50000
    made = [beta.files.upload(file=(f"\u00e9 {i}.txt", data, "text/plain")) for i in range(3)]
    assert (made[0].filename, made[0].size_bytes, made[0].mime_type) == ("\u00e9 0.txt", len(data), "text/plain")
    assert beta.files.retrieve_metadata(made[0].id) == made[0]
    assert beta.files.download(made[0].id).read() == data
    ids = [f.id for f in made]
    assert [f.id for f in beta.files.list(limit=2) if f.id in ids] == ids[::-1]
    agent = beta.agents.create(name="files", model="claude-sonnet-4-5")
    environment = beta.environments.create(name=f"files py {time.time()}", config={"type": "cloud", "networking": {"type": "unrestricted"}})
    session = beta.sessions.create(agent=agent.id, environment_id=environment.id, resources=[{"type": "file", "file_id": ids[0]}])
    resources = beta.sessions.resources
    added = resources.add(session.id, type="file", file_id=ids[1], mount_path="/workspace/in.txt")
    assert [r.id for r in resources.list(session.id)] == [session.resources[0].id, added.id]
    assert resources.retrieve(added.id, session_id=session.id).id == added.id
    refused(400, "authorization_token", resources.update, added.id, session_id=session.id, authorization_token="t")
    refused(409, "", beta.files.delete, ids[1])
    assert resources.delete(added.id, session_id=session.id).id == added.id
    beta.sessions.delete(session.id)
    assert [beta.files.delete(i).id for i in ids] == ids
    url = "https://github.com/octocat/Hello-World.git"
    repository = {"type": "github_repository", "url": url, "authorization_token": "gh-t0ken", "checkout": {"type": "commit", "sha": "a" * 40}}
    session = beta.sessions.create(agent=agent.id, environment_id=environment.id, resources=[repository])
    (shown,) = session.resources
    assert (shown.type, shown.url, shown.mount_path, shown.checkout.sha) == ("github_repository", url, "/workspace/Hello-World", "a" * 40), shown
    rotated = resources.update(shown.id, session_id=session.id, authorization_token="gh-0ther")
    assert (rotated.id, rotated.url, rotated.checkout) == (shown.id, shown.url, shown.checkout) and rotated.updated_at > shown.updated_at
    assert resources.retrieve(shown.id, session_id=session.id) == rotated
    assert "gh-" not in session.to_json() + rotated.to_json()
    beta.sessions.delete(session.id)


def bundle(text):
    return [("hello/SKILL.md", f"---\nname: hello\ndescription: {text}\n---\nSay hello.\n".encode()), ("hello/data/x.txt", b"data")]


@checks.check
def skills_and_versions():
    versions = beta.skills.versions
    skill = beta.skills.create(files=bundle("One."))
    second = versions.create(skill.id, files=bundle("Two."))
    assert beta.skills.retrieve(skill.id).latest_version_id == second.id
    first = versions.retrieve(skill.latest_version_id, skill_id=skill.id)
    assert (first.name, first.description) == ("hello", "One.")
    assert [v.id for v in versions.list(skill.id, limit=1)] == [second.id, first.id]
    assert skill.id in [s.id for s in beta.skills.list(limit=1)]
    assert versions.download(first.id, skill_id=skill.id).read()[:4] == b"PK\x03\x04"
    for v in (first, second):
        assert versions.delete(v.id, skill_id=skill.id).id
    assert beta.skills.delete(skill.id).id == skill.id
    refused(404, "", beta.skills.retrieve, skill.id)


@checks.check
def vaults_and_credentials():
    vault = beta.vaults.create(display_name="Ada", metadata={"a": "b"})
    state["vault"] = vault
    assert beta.vaults.retrieve(vault.id).display_name == "Ada"
    assert beta.vaults.update(vault.id, display_name="Lovelace").display_name == "Lovelace"
    assert vault.id in [v.id for v in beta.vaults.list(limit=1)]
    auth = {"type": "static_bearer", "token": "tok3n", "mcp_server_url": "https://py.example/mcp"}
    made = beta.vaults.credentials.create(vault.id, auth=auth)
    assert made.type == "vault_credential" and "tok3n" not in made.to_json()
    assert beta.vaults.credentials.retrieve(made.id, vault_id=vault.id) == made
    said = beta.vaults.credentials.mcp_oauth_validate(made.id, vault_id=vault.id)  # nothing answers at that name
    assert said.credential_id == made.id and "tok3n" not in said.to_json()
    beta.vaults.credentials.update(made.id, vault_id=vault.id, auth={"type": "static_bearer", "token": "n3w"})
    assert [c.id for c in beta.vaults.credentials.list(vault.id)] == [made.id]
    assert beta.vaults.credentials.archive(made.id, vault_id=vault.id).archived_at
    assert beta.vaults.credentials.delete(made.id, vault_id=vault.id).type == "vault_credential_deleted"
    other = beta.vaults.create(display_name="Old")
    assert beta.vaults.archive(other.id).archived_at
    assert beta.vaults.delete(other.id).type == "vault_deleted"


@checks.check
def memories_and_versions():
    store = beta.memory_stores.create(name="Notes")
    assert store.type == "memory_store" and store.description == ""
    assert beta.memory_stores.retrieve(store.id) == store
    assert beta.memory_stores.update(store.id, description="d").description == "d"
    assert store.id in [s.id for s in beta.memory_stores.list(limit=1)]
    memories, versions = beta.memory_stores.memories, beta.memory_stores.memory_versions
    made = memories.create(store.id, path="/a/b.md", content="one", view="full")
    assert (made.content, made.content_sha256) == ("one", sha("one"))
    assert memories.retrieve(made.id, memory_store_id=store.id, view="full").content == "one"
    must = {"type": "content_sha256", "content_sha256": sha("one")}
    assert memories.update(made.id, memory_store_id=store.id, content="two", precondition=must).content_sha256 == sha("two")
    try:
        memories.update(made.id, memory_store_id=store.id, content="three", precondition=must)
        raise AssertionError("taken")
    except anthropic.ConflictError as e:
        assert e.body["error"]["type"] == "memory_precondition_failed_error", e.body
    assert [(m.type, m.path) for m in memories.list(store.id, depth=1)] == [("memory_prefix", "/a/")]
    assert [m.content for m in memories.list(store.id, view="full", path_prefix="/a/")] == ["two"]
    assert memories.delete(made.id, memory_store_id=store.id, expected_content_sha256=sha("two")).type == "memory_deleted"
    all_ = list(versions.list(store.id, memory_id=made.id, limit=1))
    assert [v.operation for v in all_] == ["deleted", "modified", "created"]
    assert versions.redact(all_[2].id, memory_store_id=store.id).redacted_at
    assert versions.retrieve(all_[2].id, memory_store_id=store.id).content is None
    assert beta.memory_stores.archive(store.id).archived_at
    assert beta.memory_stores.delete(store.id).type == "memory_store_deleted"


@checks.check
def deployments_and_runs():
    agent = beta.agents.create(name="deployed", model="claude-sonnet-4-5")
    environment = beta.environments.create(name=f"deploy py {time.time()}", config={"type": "cloud", "networking": {"type": "unrestricted"}})
    made = beta.deployments.create(
        name="nightly",
        agent=agent.id,
        environment_id=environment.id,
        initial_events=[{"type": "user.message", "content": [{"type": "text", "text": "hello"}]}],
        schedule={"type": "cron", "expression": "30 2 * * *", "timezone": "Europe/Berlin"},
        vault_ids=[state["vault"].id],
    )
    assert (made.agent.version, len(made.schedule.upcoming_runs_at)) == (1, 5)
    assert beta.deployments.update(made.id, description="x").description == "x"
    assert beta.deployments.retrieve(made.id).description == "x"
    assert beta.deployments.pause(made.id).paused_reason.type == "manual"
    assert beta.deployments.unpause(made.id).status == "active"
    run = beta.deployments.run(made.id)
    assert run.trigger_context.type == "manual" and beta.sessions.retrieve(run.session_id).deployment_id == made.id
    assert [r.id for r in beta.deployment_runs.list(deployment_id=made.id)] == [run.id]
    assert beta.deployment_runs.retrieve(run.id).session_id == run.session_id
    assert made.id in [d.id for d in beta.deployments.list(limit=1)]
    assert beta.deployments.archive(made.id).archived_at


@checks.check
def every_method_was_called():
    assert not left, sorted(left)


checks.finish()
