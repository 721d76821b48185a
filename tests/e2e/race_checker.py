"""Says what is wrong with a session's history. It reads the event list and the transcript, knows the public rules of a turn (docs/semantics.md), and nothing
of the server: no order of commits, no internal state. A violation is a line of text that begins with the rule.

    check(events, transcript, settled=True) -> [violation, ...]

events: as GET /v1/sessions/{id}/events lists them. transcript: [(role, [block, ...]), ...] as the model is told it. settled: the session is at rest, so
nothing may be open or unread. Texts of the scripts: a message holds "<m:TOKEN>"; the model's answer to it is "a:TOKEN"."""
import re

TOKEN = re.compile(r"<m:([\w.]+)>")
ANSWER = re.compile(r"a:([\w.]+)")
OUTPUTS = ("agent.message", "agent.thinking", "agent.tool_use", "agent.custom_tool_use", "agent.mcp_tool_use")
CALLS = OUTPUTS[2:]
RESULTS = ("agent.tool_result", "agent.mcp_tool_result", "user.tool_result", "user.custom_tool_result")
STATUSES = ("session.status_running", "session.status_rescheduled", "session.status_idle", "session.status_terminated")
MAY_FOLLOW = {  # status events, as the contract's state machine allows them
    None: ("session.status_running", "session.status_terminated"),
    "session.status_running": STATUSES[1:],
    "session.status_rescheduled": ("session.status_running", "session.status_idle", "session.status_terminated"),
    "session.status_idle": ("session.status_running", "session.status_terminated"),
    "session.status_terminated": (),
}
FITTING = {
    "agent.tool_use": ("agent.tool_result", "user.tool_result"),
    "agent.mcp_tool_use": ("agent.mcp_tool_result",),
    "agent.custom_tool_use": ("user.custom_tool_result",),
}


def answered(result):
    return next((result[k] for k in ("tool_use_id", "custom_tool_use_id", "mcp_tool_use_id") if k in result), None)


def texts(blocks):
    return [b["text"] for b in blocks if b["type"] == "text"]


class Log:
    """One walk over the events."""

    def __init__(self):
        self.bad = []
        self.status, self.barrier = None, None  # the last status event's type; ids of requires_action while they wait
        self.request = None  # id of the open model request
        self.open = {}  # call id -> its event, while it has no result
        self.calls = {}
        self.confirmed = set()
        self.interrupted = False  # an interrupt has hit a turn whose idle has not come yet

    def say(self, rule, event, what):
        self.bad.append(f"{rule}: {what} (at {event['type']} {event['id']})")

    def take(self, e):
        kind = e["type"]
        if kind in STATUSES:
            self.on_status(e)
        elif kind == "span.model_request_start":
            self.on_request(e)
        elif kind == "span.model_request_end":
            if self.request != e["model_request_start_id"]:
                self.say("spans", e, f"ends {e['model_request_start_id']}, open is {self.request}")
            self.request = None
        elif kind == "user.interrupt":
            self.interrupted = self.interrupted or self.busy()
        elif kind == "user.tool_confirmation":
            self.on_confirmation(e)
        if kind in OUTPUTS:
            self.on_output(e)
        if kind in RESULTS:
            self.on_result(e)

    def busy(self):
        return self.status in ("session.status_running", "session.status_rescheduled") or bool(self.barrier)

    def on_status(self, e):
        kind = e["type"]
        again = kind == "session.status_idle" == self.status and self.barrier  # part of a barrier is answered, or it is interrupted
        if kind not in MAY_FOLLOW[self.status] and not again:
            self.say("two idle events" if kind == self.status == "session.status_idle" else "status", e, f"{kind} follows {self.status}")
        if kind == "session.status_idle":
            self.on_idle(e)
        elif self.interrupted:
            self.say("interrupt", e, f"{kind} comes before the idle event of the interrupt")
        if kind == "session.status_running":
            self.barrier = None
        self.status = kind

    def on_idle(self, e):
        why = e["stop_reason"]["type"]
        if self.request:
            self.say("spans", e, f"idle while the request {self.request} is open")
        if self.interrupted and why != "end_turn":
            self.say("interrupt", e, f"its idle event says {why}")
        self.interrupted = False
        if why != "requires_action":
            for call in self.open:
                self.say("call without result", e, f"{call} is open at {why}")
            self.barrier = None
            return
        ids = e["stop_reason"]["event_ids"]
        if sorted(ids) != sorted(self.open):
            self.say("requires_action", e, f"lists {ids}, open are {list(self.open)}")
        if self.barrier is not None and not set(ids) <= set(self.barrier):
            self.say("requires_action", e, "a barrier grew while it was waited for")
        self.barrier = ids

    def on_request(self, e):
        if self.request:
            self.say("spans", e, f"begins while {self.request} is open")
        if self.status != "session.status_running":
            self.say("spans", e, f"begins while the session is {self.status}")
        if self.interrupted:
            self.say("interrupt", e, "the model is asked before the idle event of the interrupt")
        for call in self.open:
            self.say("call without result", e, f"the model is asked while {call} is open")
        self.request = e["id"]

    def on_output(self, e):
        if not self.request:
            self.say("output", e, "no model request is open")
        if self.interrupted:
            self.say("interrupt", e, "output of an interrupted turn")
        if e["type"] in CALLS:
            self.open[e["id"]] = e
            self.calls[e["id"]] = e

    def on_confirmation(self, e):
        call = e["tool_use_id"]
        if call not in self.open or self.calls[call].get("evaluated_permission") != "ask":
            self.say("confirmation", e, f"{call} does not wait for one")
        if call in self.confirmed:
            self.say("confirmation", e, f"{call} had one")
        self.confirmed.add(call)

    def on_result(self, e):
        call = answered(e)
        if call not in self.calls:
            self.say("double result", e, f"answers {call}, which is no call before it")
        elif call not in self.open:
            self.say("double result", e, f"{call} had a result")
        else:
            use = self.open.pop(call)
            if e["type"] not in FITTING[use["type"]]:
                self.say("result", e, f"does not fit a {use['type']}")


# ---- the transcript against the log ----


def check_pairing(transcript):
    """Each call has its one result in the entry behind it, in the order of the calls; no result stands elsewhere."""
    wanted = []
    for n, (role, blocks) in enumerate(transcript):
        ids = [b["tool_use_id"] for b in blocks if b["type"] == "tool_result"]
        if ids != wanted:
            yield f"transcript: entry {n} holds results of {ids}, wanted are {wanted}"
        wanted = [b["id"] for b in blocks if b["type"] == "tool_use"]
        if wanted and role != "assistant":
            yield f"transcript: entry {n} of the user holds a call"
    if wanted:
        yield f"transcript: {wanted} have no result"


def check_order(events, transcript):
    """The model has read each message once, in the order of the log, and answered the one that it had read last."""
    sent = [t for e in events if e["type"] == "user.message" for t in TOKEN.findall(str(e["content"]))]
    read = [t for role, blocks in transcript if role == "user" for x in texts(blocks) for t in TOKEN.findall(x)]
    for t in sorted(set(read)):
        if read.count(t) > 1:
            yield f"double input: the model has read {t} {read.count(t)} times"
    if [t for t in sent if t in read] != read:
        yield f"ordering: sent {sent}, read {read}"
    for t in sent:
        if t not in read:
            yield f"lost input: {t} is not in the transcript"
    last = None
    for role, blocks in transcript:
        for x in texts(blocks):
            for t in (TOKEN if role == "user" else ANSWER).findall(x):
                if role == "user":
                    last = t
                elif t != last:
                    yield f"ordering: {t} is answered after {last} was read"


def check_outputs(events, transcript):
    """What the log shows of the model is what the transcript keeps, and the other way round."""
    said = [x for e in events if e["type"] == "agent.message" for x in texts(e["content"])]
    kept = [x for role, blocks in transcript if role == "assistant" for x in texts(blocks)]
    if said != kept:
        yield f"output: the log says {said}, the transcript {kept}"
    uses = [e for e in events if e["type"] in CALLS]
    blocks = [b for role, bs in transcript if role == "assistant" for b in bs if b["type"] == "tool_use"]
    if [(u["name"], u["input"]) for u in uses] != [(b["name"], b["input"]) for b in blocks]:
        yield f"output: the log has {len(uses)} calls, the transcript {len(blocks)}, or they differ"
        return
    by_call = {answered(e): e for e in events if e["type"] in RESULTS}
    told = {b["tool_use_id"]: b for _, bs in transcript for b in bs if b["type"] == "tool_result"}
    for use, block in zip(uses, blocks):
        event, result = by_call.get(use["id"]), told.get(block["id"])
        if event and result and texts(event.get("content") or []) != texts(result["content"]):
            yield f"result: {use['id']} shows {event.get('content')}, the model was told {result['content']}"


def check(events, transcript, settled=True):
    log = Log()
    ids = [e["id"] for e in events]
    for e in events:
        log.take(e)
    bad = log.bad
    if len(set(ids)) != len(ids):
        bad.append("double event: an id is there twice")
    if settled:
        unused = log.status is None and not any(e["type"] == "user.message" for e in events)
        if (log.status != "session.status_idle" and not unused) or log.barrier or log.request or log.interrupted:
            bad.append(f"wedged: the last status is {log.status}, barrier {log.barrier}, request {log.request}")
        bad += [f"unread input: {e['type']} {e['id']} is not processed" for e in events if e["processed_at"] is None]
        bad += check_pairing(transcript)
        bad += check_order(events, transcript)
        bad += check_outputs(events, transcript)
    return bad
