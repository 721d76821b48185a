"""The official SDK as referee: the same scenario by it and by our adapter, through a proxy that writes down every request, and what differs.

    tests/remote/run_referee.py NAME...        cube and e2b without a name; daytona and opensandbox need a Docker Engine

Each kind of request is compared by method, path, query, headers that matter, and the fields and parts of its bodies. The differences are in tests/remote/referee/NAME.txt, and their
reasons on the adapter's page; one that is not in the list, or one of the list that is not there any more, fails. --update writes the list.

A service's module has prepare(names), requests(name) -> (log of the SDK, log of the adapter), and what its requests look like: HEADERS that matter, SECRET ones of them whose values
do not, IDS of the paths, and what is IGNORED.
"""
import importlib
import json
import os
import re
import sys
import unittest
import urllib.parse

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "e2e")]
# In this order: the second leaves this machine's network for the Engine's.
MODULES = {"referee_envd": ["cube", "e2b"], "referee_containers": ["daytona", "opensandbox"]}
MAPS = (".metadata", ".labels", ".env", ".envs")  # with keys of the user's own


def fields(value, at):
    """The paths of a JSON value, without what stands in them."""
    if isinstance(value, dict) and value and not at.endswith(MAPS):
        for k, v in value.items():
            yield from fields(v, f"{at}.{k}")
    else:
        yield f"{at}: {type(value).__name__}"


def facts(module, entry):
    """(operation, what can be said about the request)."""
    path, _, query = entry["path"].partition("?")
    for pattern, name in module.IDS:
        path = re.sub(pattern, name, path)
    said = {"path " + path} | {f"query {k}" for k in dict(urllib.parse.parse_qsl(query, keep_blank_values=True))}
    for k, v in entry["headers"].items():
        if k in module.HEADERS:
            said.add(f"header {k}" if k in module.SECRET else f"header {k}: {re.sub('boundary=.*', 'boundary', v)}")
    body, kind = entry["body"], entry["headers"].get("content-type", "")
    if kind.startswith("application/connect+json"):
        body = body[5:]
    if "json" in kind and body:
        said.update(fields(json.loads(body), "body"))
    if kind.startswith("multipart/"):
        said |= {"part " + n.decode() for n in re.findall(rb'form-data; name="?([^";\r\n]+)', body)}
    return f"{entry['method']} {path.removeprefix('/v2')}", said


def operations(module, log):
    """operation -> what is said in any request of that kind."""
    out = {}
    for entry in log:
        if not re.search(module.IGNORED, entry["path"]):
            operation, said = facts(module, entry)
            out.setdefault(operation, set()).update(said)
    return out


def differences(module, name):
    sdk, own = (operations(module, log) for log in module.requests(name))
    lines, same = [], 0
    for operation in sorted({*sdk, *own}):
        if operation not in own or operation not in sdk:
            lines.append(f"{operation}: the {'SDK' if operation in sdk else 'adapter'} only")
            continue
        lines += [f"{operation}: {fact}: the SDK only" for fact in sorted(sdk[operation] - own[operation])]
        lines += [f"{operation}: {fact}: the adapter only" for fact in sorted(own[operation] - sdk[operation])]
        same += len(sdk[operation] & own[operation])
    return lines, same


class Referee(unittest.TestCase):
    update = False
    todo = ()

    def test_what_differs_is_listed(self):
        for module, name in self.todo:
            with self.subTest(name):
                lines, same = differences(module, name)
                print(f"{name}: {same} facts are the same, {len(lines)} differ")
                path = os.path.join(HERE, "referee", name + ".txt")
                if self.update:
                    with open(path, "w", encoding="utf-8") as f:
                        f.write("".join(line + "\n" for line in lines))
                with open(path, encoding="utf-8") as f:
                    self.assertEqual(lines, f.read().splitlines())


def main(words):
    Referee.update = "--update" in words
    names = [w for w in words if w != "--update"] or MODULES["referee_envd"]
    if unknown := set(names) - {n for known in MODULES.values() for n in known}:
        sys.exit(f"no such service: {', '.join(sorted(unknown))}; usage: run_referee.py [--update] [NAME...]")
    for name, known in MODULES.items():
        if mine := [n for n in known if n in names]:
            module = importlib.import_module(name)
            module.prepare(mine, __file__)
            Referee.todo += tuple((module, n) for n in mine)
    unittest.main(argv=sys.argv[:1], verbosity=2)


if __name__ == "__main__":
    main(sys.argv[1:])
