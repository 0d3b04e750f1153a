"""A saga as a tree of lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta

from fencepost.saga.describe.data import Data

PIVOT = "pivot: no way back from here on"


@dataclass
class Tree:
    """A line, with what belongs to it."""

    head: str
    details: list[str] = field(default_factory=list)
    branches: list[Tree] = field(default_factory=list)


def as_text(described: Data) -> str:
    """What `describe` has said, for people."""
    if described["kind"] == "task":
        trees = [_task(described)]
    else:
        trees = [_saga(one) for one in (described, *described["children"])]
    return "\n\n".join("\n".join(_lines(tree)) for tree in trees)


def _lines(tree: Tree, before: str = "", own: str = "") -> Iterator[str]:
    yield f"{own}{tree.head}"
    stem = "│  " if tree.branches else "   "
    for detail in tree.details:
        yield f"{before}{stem}{detail}"
    for number, branch in enumerate(tree.branches, 1):
        last = number == len(tree.branches)
        corner, rest = ("└─ ", "   ") if last else ("├─ ", "│  ")
        yield from _lines(branch, before + rest, before + corner)


def _task(task: Data) -> Tree:
    head = f"task {task['name']} (version {task['version']}): {task['input']} → {task['output']}"
    return Tree(head, [*_effects(task["effects"]), _retries(task["retry"])])


def _saga(saga: Data) -> Tree:
    head = f"saga {saga['name']} (version {saga['version']}): {saga['input']} → {saga['output']}"
    details = []
    if saga["queue"] is not None:
        details.append(f"queue {saga['queue']}")
    if saga["deadline"] is not None:
        details.append(f"deadline {_span(saga['deadline'])}")
    branches = _nodes(saga["nodes"])
    for branch in saga["branches"]:
        undos = [f"undo {pair['step']} ↩ {pair['undo']}" for pair in branch["compensations"]]
        branches.append(Tree(f"on {branch['error']}", undos, _nodes(branch["nodes"])))
    return Tree(head, details, branches)


def _nodes(nodes: list[Data]) -> list[Tree]:
    trees: list[Tree] = []
    for node in nodes:
        trees.append(_node(node))
        if node.get("pivot"):
            trees.append(Tree(f"══ {PIVOT} ══"))
    return trees


def _node(node: Data) -> Tree:
    types = f"{node['input']} → {node['output']}"
    match node["kind"]:
        case "step":
            return Tree(f"{node['name']}: {types}", _step(node))
        case "map":
            return Tree(f"{node['name']}: {types}", _fan_out(node))
        case "child":
            child = f"child saga {node['child']} (version {node['child_version']})"
            return Tree(f"{node['name']}: {types}", [child])
        case "branch":
            paths = [
                Tree(f"case {label}", branches=_nodes(path) or [Tree("(straight on)")])
                for label, path in node["cases"].items()
            ]
            return Tree(f"{node['name']}: {types}", ["one of"], paths)
        case "loop":
            bound = f"again and again, at most {node['max_visits']} times"
            return Tree(f"{node['name']}: {types}", [bound], _nodes(node["body"]))
        case _:
            return Tree(f"{node['name']}: {types}", [_wait(node)])


def _fan_out(node: Data) -> list[str]:
    most = "any number" if node["max_items"] is None else f"at most {node['max_items']}"
    return [
        f"for each item: saga {node['child']} (version {node['child_version']})",
        f"join: {node['join']}; {most}, {node['max_concurrency']} at once",
    ]


def _wait(node: Data) -> str:
    waits = {
        "sleep": "waits for " + ("a while" if not node["duration"] else _span(node["duration"])),
        "until": "waits for a moment",
        "signal": f"waits for signal {node['signal']}",
        "approval": f"waits for approval {node['name']}",
    }[node["kind"]]
    return waits if node["timeout"] is None else f"{waits}, at most {_span(node['timeout'])}"


def _step(node: Data) -> list[str]:
    lines = []
    if node["compensation"] is not None:
        performs = [effect["name"] for effect in node["undo_effects"]]
        lines.append(f"↩ {node['compensation']}" + (f" ({', '.join(performs)})" * bool(performs)))
    if node["stays"]:
        lines.append("stays: nothing undoes it, on purpose")
    lines += _effects(node["effects"])
    if node["transactional"]:
        lines.append("transactional")
    lines.append(_retries(node["retry"]))
    times = [f"{what} {_span(node[what])}" for what in ("timeout", "deadline") if node[what]]
    if times:
        lines.append(", ".join(times))
    if node["queue"] is not None:
        lines.append(f"queue {node['queue']}")
    if node["limit"] is not None:
        lines.append(_limit(node["limit"]))
    if node["terminal"] is not None:
        ends = {"finish": "ends as succeeded", "continue-as-new": "continues as new"}
        lines.append(ends[node["terminal"]])
    return lines


def _effects(effects: list[Data]) -> list[str]:
    return [f"effect {e['name']}: {e['kind']} at {e['sink']}" for e in effects]


def _retries(retry: Data) -> str:
    if retry["attempts"] == 1:
        return "tried once"
    errors = ", ".join(retry["retry_on"])
    return f"tried {retry['attempts']} times on {errors}"


def _limit(limit: Data) -> str:
    figures = []
    if limit["concurrency"] is not None:
        figures.append(f"{limit['concurrency']} at once")
    if limit["rate"] is not None:
        figures.append(f"{limit['rate']} in {_span(limit['per'])}")
    by_key = ", for each key" if limit["by_key"] else ""
    return f"limit {limit['name']}: {', '.join(figures)}{by_key}"


def _span(seconds: float) -> str:
    return str(timedelta(seconds=seconds))
