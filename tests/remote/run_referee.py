"""The official SDK as referee: the same scenario by it and by our adapter, through a server that writes down every request, and what differs.

    tests/remote/run_referee.py NAME...        all that are known without a name

Each kind of request is compared by method, path, query, headers that matter and fields of the body. The differences that remain are in tests/remote/referee/NAME.txt, and their
reasons on the adapter's page; one that is not in the list, or one of the list that is not there any more, fails. --update writes the list.

A service's module has requests(name) -> (log of the SDK, log of the adapter) and facts(entry) -> (operation, set of texts).
"""
import importlib
import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "e2e")]
MODULES = {"cube": "referee_envd", "e2b": "referee_envd"}


def operations(module, log):
    """operation -> what all requests of that kind have in common, and what only some have."""
    out = {}
    for entry in log:
        operation, said = module.facts(entry)
        every, some = out.get(operation, (said, said))
        out[operation] = every & said, some | said
    return out


def differences(name):
    module = importlib.import_module(MODULES[name])
    sdk, own = (operations(module, log) for log in module.requests(name))
    lines, same = [], 0
    for operation in sorted({*sdk, *own}):
        if operation not in own:
            lines.append(f"{operation}: the SDK only")
        elif operation not in sdk:
            lines.append(f"{operation}: the adapter only")
        else:
            (every_sdk, some_sdk), (every_own, some_own) = sdk[operation], own[operation]
            lines += [f"{operation}: {fact}: the SDK only" for fact in sorted(every_sdk - some_own)]
            lines += [f"{operation}: {fact}: the adapter only" for fact in sorted(every_own - some_sdk)]
            same += len(every_sdk & every_own)
    return lines, same


class Referee(unittest.TestCase):
    update = False
    names = sorted(MODULES)

    def test_what_differs_is_listed(self):
        for name in self.names:
            with self.subTest(name):
                lines, same = differences(name)
                print(f"{name}: {same} facts are the same, {len(lines)} differ")
                path = os.path.join(HERE, "referee", name + ".txt")
                if self.update:
                    with open(path, "w", encoding="utf-8") as f:
                        f.write("".join(line + "\n" for line in lines))
                with open(path, encoding="utf-8") as f:
                    self.assertEqual(lines, f.read().splitlines())


if __name__ == "__main__":
    Referee.update = "--update" in sys.argv
    Referee.names = [a for a in sys.argv[1:] if a in MODULES] or Referee.names
    from rig import SKIPPED  # noqa: F401  (paths of the other folders)
    import envd_rig

    envd_rig.need_namespaces()
    unittest.main(argv=sys.argv[:1], verbosity=2)
