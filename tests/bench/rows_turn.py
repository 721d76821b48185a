"""Rows 28 to 30: tools, answers, waiting: what a turn does besides answering."""
import http.client
import json
import os

from bench import Product, Result, alternate, durable_commits, model_call, options, pgbench, ratio, row, rss_mb, tool


def body(text):
    return json.dumps({"events": [{"type": "user.message", "content": [{"type": "text", "text": text}]}]})


TOOL_TURN = '#fake\ntool bash {"command":"echo x"}\n---\ntext done'


@row(28)
def tool_turns(b):
    with b.new_mangod() as m:
        product = Product(m)
        agent = m.client.new_session()["agent"]["id"]  # with the built-in tools
        where = [*product.where(), *options(agent=agent, environment=product.environment, clients=16, sessions=1, body=body(TOOL_TURN))]
        tool("load", "turns", *where, *options(seconds=2))  # sandboxes are made

        def once():
            out, n = durable_commits(m.database, lambda: tool("load", "turns", *where, *options(seconds=3)))
            return out["per_s"], n / out["turns"]

        ref, (per_s, k) = alternate(lambda: pgbench(b.reference, "full", 16, 3)[0], once)
        k = round(k)
        what = f"turns with a tool call, 16 sessions × {k} commits, of four-round-trip commits ({per_s:.0f} turns/s)"
        yield ratio(28, what, ref, per_s * k, "/s", 0.20, 0.40)


CUSTOM = {"type": "custom", "name": "look", "description": "Looks.", "input_schema": {"type": "object"}}


@row(29)
def resume_latency(b):
    client = b.mangod.mangod.client
    agent = client.post("/v1/agents", {"name": "custom", "model": "m", "tools": [CUSTOM]})["id"]
    once = lambda: tool("resume", *b.mangod.where(), *options(agent=agent, environment=b.mangod.environment, answers=300))
    ref, got = alternate(lambda: pgbench(b.reference, "full", 1)[1], lambda: (once()["p50"], model_call(b)))
    what = f"a client's answer to the end of its turn, minus {got[1]:.2f} ms of model, p50, of a four-round-trip commit"
    yield ratio(29, what, ref, got[0] - got[1], " ms", 12, 6, False)


def threads(pid):
    return len(os.listdir(f"/proc/{pid}/task"))


def post_all(product, sessions, text):
    """One session after another, each with a first message."""
    connection = http.client.HTTPConnection("127.0.0.1", product.mangod.port, timeout=30)
    event = {"type": "user.message", "content": [{"type": "text", "text": text}]}
    content = json.dumps({"agent": product.agent, "environment_id": product.environment, "initial_events": [event]})
    for _ in range(sessions):
        connection.request("POST", "/v1/sessions", content, {"x-api-key": product.mangod.key, "content-type": "application/json"})
        answer = connection.getresponse()
        if answer.status != 200:
            raise RuntimeError(f"status {answer.status}: {answer.read()[:300]}")
        answer.read()
    connection.close()


def waiting(product):
    return int(product.mangod.database.query("SELECT count(*) FROM session_state WHERE turn_step = 'model'")[0][0])


@row(30)
def waiting_turns(b):
    n, model_s = 1000, 5
    with b.new_mangod() as m:
        product = Product(m)
        pid = m.process.pid
        product.load("turns", 16, 3)  # heaps and pools have their size
        post_all(product, 100, "#fake\ndelay 60000\ntext late")
        few, before = threads(pid), rss_mb(pid)
        post_all(product, n, "#fake\ndelay 60000\ntext late")
        if waiting(product) != n + 100:
            raise RuntimeError(f"{waiting(product)} turns wait, not {n + 100}")
        many, kb = threads(pid), (rss_mb(pid) - before) * 1024 / n
    yield Result(30, f"threads while {n:,} more turns wait for a model, of before", str(few), str(many), many / few, 1.1, 1.0, False)
    yield Result(30, "memory of a turn that waits for a model", "", f"{kb:.1f} kB", kb, 60, 40, False)
    with b.new_mangod() as m:
        product = Product(m)
        text = f"#fake\ndelay {model_s * 1000}\ntext well"
        where = [*product.where(), *options(agent=product.agent, environment=product.environment, clients=n, sessions=1, body=body(text))]
        seconds, turns = 4 * model_s + 2, 4  # whole turns: the fifth cannot end in that time
        per_s = tool("load", "turns", *where, *options(seconds=seconds))["per_s"]
    what = f"turns/s of {n:,} sessions on a model that takes {model_s} s, of what it allows"
    yield ratio(30, what, n * turns / seconds, per_s, "/s", 0.7, 0.9)
