"""The judge of the interleavings is judged: it is content with a right history and names each planted fault."""
import copy
import unittest

from harness import main
from race_checker import check

CALL, CUSTOM = "sevt_call", "sevt_custom"


def history():
    """Two messages: the first calls two tools, is interrupted while one waits; the second is answered."""
    request = {"model_usage": {}, "is_error": False}
    log = [
        {"type": "user.message", "id": "m1", "content": [{"type": "text", "text": "<m:1>"}]},
        {"type": "session.status_running", "id": "r1"},
        {"type": "span.model_request_start", "id": "q1"},
        {"type": "agent.message", "id": "x1", "content": [{"type": "text", "text": "let me see"}]},
        {"type": "agent.tool_use", "id": CALL, "name": "bash", "input": {"a": 1}, "evaluated_permission": "ask"},
        {"type": "agent.custom_tool_use", "id": CUSTOM, "name": "lookup", "input": {}},
        {"type": "span.model_request_end", "id": "e1", "model_request_start_id": "q1", **request},
        {"type": "session.status_idle", "id": "i1", "stop_reason": {"type": "requires_action", "event_ids": [CALL, CUSTOM]}},
        {"type": "user.message", "id": "m2", "content": [{"type": "text", "text": "<m:2>"}]},
        {"type": "user.custom_tool_result", "id": "t1", "custom_tool_use_id": CUSTOM, "content": [{"type": "text", "text": "blue"}]},
        {"type": "session.status_idle", "id": "i2", "stop_reason": {"type": "requires_action", "event_ids": [CALL]}},
        {"type": "user.interrupt", "id": "n1"},
        {"type": "agent.tool_result", "id": "t2", "tool_use_id": CALL, "content": [{"type": "text", "text": "not run"}]},
        {"type": "session.status_idle", "id": "i3", "stop_reason": {"type": "end_turn"}},
        {"type": "session.status_running", "id": "r2"},
        {"type": "span.model_request_start", "id": "q2"},
        {"type": "agent.message", "id": "x2", "content": [{"type": "text", "text": "a:2"}]},
        {"type": "span.model_request_end", "id": "e2", "model_request_start_id": "q2", **request},
        {"type": "session.status_idle", "id": "i4", "stop_reason": {"type": "end_turn"}},
    ]
    for e in log:
        e["processed_at"] = "2026-01-01T00:00:00Z"
    transcript = [
        ("user", [{"type": "text", "text": "<m:1>"}]),
        ("assistant", [
            {"type": "text", "text": "let me see"},
            {"type": "tool_use", "id": "tu1", "name": "bash", "input": {"a": 1}},
            {"type": "tool_use", "id": "tu2", "name": "lookup", "input": {}},
        ]),
        ("user", [
            {"type": "tool_result", "tool_use_id": "tu1", "content": [{"type": "text", "text": "not run"}]},
            {"type": "tool_result", "tool_use_id": "tu2", "content": [{"type": "text", "text": "blue"}]},
        ]),
        ("user", [{"type": "text", "text": "<m:2>"}]),
        ("assistant", [{"type": "text", "text": "a:2"}]),
    ]  # fmt: skip
    return log, transcript


def at(log, ident):
    return next(i for i, e in enumerate(log) if e["id"] == ident)


def twice(log, ident):
    log.insert(at(log, ident) + 1, dict(log[at(log, ident)], id=ident + "b"))


def drop(log, ident):
    del log[at(log, ident)]


def move(log, ident, before):
    e = log.pop(at(log, ident))
    log.insert(at(log, before), e)


# what is done to the log and the transcript -> the rule that must be named
FAULTS = [
    ("two idle events", lambda log, t: twice(log, "i4")),
    ("two idle events", lambda log, t: twice(log, "i3")),
    ("status", lambda log, t: twice(log, "r2")),
    ("status", lambda log, t: drop(log, "r1")),
    ("double result", lambda log, t: twice(log, "t1")),
    ("double result", lambda log, t: move(log, "t1", "q1")),
    ("call without result", lambda log, t: drop(log, "t2")),
    ("requires_action", lambda log, t: log[at(log, "i1")]["stop_reason"]["event_ids"].pop()),
    ("requires_action", lambda log, t: log[at(log, "i2")]["stop_reason"]["event_ids"].append(CUSTOM)),
    ("interrupt", lambda log, t: move(log, "i3", "e2")),
    ("interrupt", lambda log, t: log[at(log, "i3")].update(stop_reason={"type": "retries_exhausted"})),
    ("interrupt", lambda log, t: drop(log, "i3")),
    ("spans", lambda log, t: drop(log, "e1")),
    ("spans", lambda log, t: twice(log, "q2")),
    ("output", lambda log, t: move(log, "x2", "q2")),
    ("output", lambda log, t: drop(log, "x1")),
    ("output", lambda log, t: t[1][1].pop(0)),
    ("output", lambda log, t: t[1][1][1].update(input={"a": 2})),
    ("result", lambda log, t: t[2][1][1]["content"][0].update(text="red")),
    ("result", lambda log, t: log[at(log, "t2")].update(type="user.custom_tool_result", custom_tool_use_id=CALL)),
    ("transcript", lambda log, t: t[2][1].pop()),
    ("transcript", lambda log, t: t[2][1].reverse()),
    ("transcript", lambda log, t: t.pop(2)),
    ("lost input", lambda log, t: t.pop(3)),
    ("double input", lambda log, t: t.insert(3, t[3])),
    ("ordering", lambda log, t: t.insert(0, t.pop(3))),
    ("ordering", lambda log, t: t.append(("assistant", [{"type": "text", "text": "a:1"}]))),
    ("unread input", lambda log, t: log[at(log, "m2")].update(processed_at=None)),
    ("wedged", lambda log, t: log.pop()),
    ("double event", lambda log, t: log[at(log, "x2")].update(id="x1")),
    ("confirmation", lambda log, t: log.insert(at(log, "n1"), {"type": "user.tool_confirmation", "id": "c1", "tool_use_id": CUSTOM, "processed_at": "x"})),
]


class Judge(unittest.TestCase):
    def test_a_right_history_is_right(self):
        self.assertEqual(check(*history()), [])

    def test_each_planted_fault_is_named(self):
        for n, (rule, spoil) in enumerate(FAULTS):
            with self.subTest(rule=rule, fault=n):
                log, transcript = copy.deepcopy(history())
                spoil(log, transcript)
                found = check(log, transcript)
                self.assertTrue(any(line.startswith(rule + ":") for line in found), found)


if __name__ == "__main__":
    main()
