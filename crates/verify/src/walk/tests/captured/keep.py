#!/usr/bin/env python3
"""Keeps of what `netloom verify --cluster --record FILE` has written what the tests need.

    python3 keep.py FILE > nftables.json

Services that no case needs go, with kube-proxy's rules for them and the chains that nothing leads to any more.
"""

import json
import re
import sys

KEPT = ("client-1", "server-1", "client-2", "server-2", "beside-1", "across-1", "local", "manual")


def service(text):
    """The Service of the verification that a chain's name or a rule's comment names."""
    found = re.search(r"netloom-verify/([a-z0-9-]+)[:/]", text or "")
    return found and found.group(1)


def goes(text):
    return service(text) is not None and service(text) not in KEPT


def targets(value):
    """The chains that a rule or a set leads to."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in ("jump", "goto") and isinstance(inner, str):
                yield inner
            else:
                yield from targets(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from targets(inner)


def looked_up(rule):
    return {op["lookup"]["set"] for op in rule["ops"] if isinstance(op, dict) and "lookup" in op}


def keep(table):
    for found in table["sets"]:
        found["elements"] = [e for e in found["elements"] if not any(goes(chain) for chain in targets(e))]
    chains = {chain["name"]: chain for chain in table["chains"]}
    sets = {found["name"]: found for found in table["sets"]}
    for chain in chains.values():
        chain["rules"] = [r for r in chain["rules"] if not goes(r.get("comment"))]
    reached, todo, used = set(), [name for name, chain in chains.items() if chain["base"]], set()
    while todo:
        name = todo.pop()
        if name in reached or name not in chains:
            continue
        reached.add(name)
        for rule in chains[name]["rules"]:
            todo.extend(targets(rule))
            for of in looked_up(rule) - used:
                used.add(of)
                todo.extend(targets(sets[of]))
    table["chains"] = [chain for name, chain in chains.items() if name in reached]
    table["sets"] = [found for name, found in sets.items() if name in used]
    return table


def small(value):
    """Without what is as if it were not there."""
    if isinstance(value, dict):
        return {key: small(inner) for key, inner in value.items() if inner is not None or key not in ("grown", "agent", "key_end", "mtu", "from", "source")}
    return [small(inner) for inner in value] if isinstance(value, list) else value


snapshot = json.load(open(sys.argv[1]))
snapshot["site"]["services"] = [s for s in snapshot["site"]["services"] if s["name"].split("/")[-1] in KEPT]
names = {"pod/" + pod["name"] for pod in snapshot["site"]["pods"]}
snapshot["namespaces"] = [n for n in snapshot["namespaces"] if n["place"].startswith("node/") or n["place"] in names]
for namespace in snapshot["namespaces"]:
    namespace["tables"] = [keep(table) for table in namespace["tables"] if table["family"] != "ip6"]
json.dump(small(snapshot), sys.stdout, separators=(",", ":"))
print()
