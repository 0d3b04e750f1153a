"""A saga as a Mermaid flowchart."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from fencepost.saga.describe.data import Data

Loose = list[tuple[str, str]]
"""(node, label) of edges that still lead nowhere."""

STYLES = (
    "classDef undo stroke-dasharray: 4 3;",
    "classDef pivot stroke-width: 4px;",
)


def as_mermaid(described: Data) -> str:
    """What `describe` has said as a flowchart; a child saga is a box of its own."""
    chart = _Chart()
    if described["kind"] == "task":
        chart.node("[", f"task {described['name']}", "]")
        for effect in described["effects"]:
            chart.node("[[", f"{effect['name']}: {effect['kind']} at {effect['sink']}", "]]")
    else:
        chart.saga(described)
        for child in described["children"]:
            chart.boxed(child)
    return "\n".join(["flowchart TD", *(f"  {line}" for line in (*chart.lines, *STYLES))])


def quoted(text: str) -> str:
    """A label in which nothing means anything to Mermaid or HTML."""
    safe = "".join(c if c.isalnum() or c in " _-.,:()→↩≤" else f"#{ord(c)};" for c in text)
    return f'"{safe}"'


class _Chart:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self._numbers = count(1)

    def node(self, opening: str, label: str, closing: str, style: str = "") -> str:
        name = f"n{next(self._numbers)}"
        self.lines.append(f"{name}{opening}{quoted(label)}{closing}{f':::{style}' * bool(style)}")
        return name

    def edges(self, loose: Loose, to: str) -> None:
        for source, label in loose:
            self.lines.append(f"{source} -->{f'|{quoted(label)}|' * bool(label)} {to}")

    def boxed(self, saga: Data) -> None:
        self.lines.append(f"subgraph s{next(self._numbers)} [{quoted('saga ' + saga['name'])}]")
        self.saga(saga)
        self.lines.append("end")

    def saga(self, saga: Data) -> None:
        start = self.node("([", f"{saga['name']}: {saga['input']}", "])")
        loose = self.along(saga["nodes"], [(start, "")])
        if loose:
            self.edges(loose, self.node("([", saga["output"], "])"))
        for branch in saga["branches"]:
            failed = self.node(">", f"on {branch['error']}", "]")
            left = self.along(branch["nodes"], [(failed, "undone")])
            if left and branch["nodes"]:
                self.edges(left, self.node("([", "compensated", "])"))

    def along(self, nodes: Sequence[Data], loose: Loose) -> Loose:
        for node in nodes:
            loose = self.past(node, loose)
        return loose

    def past(self, node: Data, loose: Loose) -> Loose:
        match node["kind"]:
            case "step":
                return self.step(node, loose)
            case "map" | "child":
                each = "" if node["kind"] == "child" else "each in "
                here = self.node("[[", f"{node['name']}: {each}saga {node['child']}", "]]")
            case "branch":
                return self.branch(node, loose)
            case "loop":
                return self.loop(node, loose)
            case _:
                here = self.node("{{", f"{node['kind']}: {node['name']}", "}}")
        self.edges(loose, here)
        return [(here, node["output"])]

    def step(self, node: Data, loose: Loose) -> Loose:
        effects = "".join(f", {e['name']} at {e['sink']}" for e in node["effects"])
        here = self.node("[", node["name"] + effects, "]", "pivot" if node["pivot"] else "")
        self.edges(loose, here)
        if node["compensation"] is not None:
            undo = self.node("[", f"↩ {node['compensation']}", "]", "undo")
            self.lines.append(f"{here} -.- {undo}")
        match node["terminal"]:
            case "continue-as-new":
                self.edges([(here, node["output"])], self.node("([", "continues as new", "])"))
            case "finish":
                self.edges([(here, node["output"])], self.node("([", "succeeded", "])"))
            case _:
                return [(here, node["output"])]
        return []

    def branch(self, node: Data, loose: Loose) -> Loose:
        here = self.node("{", node["name"], "}")
        self.edges(loose, here)
        return [
            end
            for label, path in node["cases"].items()
            for end in self.along(path, [(here, label)])
        ]

    def loop(self, node: Data, loose: Loose) -> Loose:
        begin = self.node("((", node["name"], "))")
        self.edges(loose, begin)
        again = self.node("{", f"again, at most {node['max_visits']} times", "}")
        self.edges(self.along(node["body"], [(begin, "")]), again)
        self.edges([(again, "again")], begin)
        return [(again, node["output"])]
