"""The matrix as a table and as JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from fencepost import EffectKind
from tests.acceptance.effects.cells import Cell, Loss, Point, Result

REPORT = "EFFECTS_MATRIX"
"""Environment variable: the file that gets the matrix as JSON."""

Results = Mapping[str, Mapping[Cell, Result]]


def table(results: Results) -> list[str]:
    """Lines: for each database and fault, kinds by points."""
    lines: list[str] = []
    for database, cells in results.items():
        for loss in Loss:
            titles = [str(point) for point in Point]
            rows = [[f"{database}, {loss}", *titles]]
            for kind in EffectKind:
                found = [cells.get(Cell(kind, point, loss)) for point in Point]
                rows.append([str(kind), *("-" if one is None else one.shown() for one in found)])
            widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
            lines += ["", *("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)]
    return lines


def save(results: Results) -> Path | None:
    """Write the JSON report, if the environment names a file."""
    named = os.environ.get(REPORT)
    if not named:
        return None
    cells = [
        {
            "database": database,
            "kind": cell.kind,
            "point": cell.point,
            "fault": cell.loss,
            "sink_count": result.count,
            "parked": result.parked,
            "sink_count_when_parked": result.first if result.parked else None,
            "record_when_parked": result.record,
            "zombie_refused_by": result.zombie,
            "status": result.status,
            "payment_returned": result.payment,
            "payments_at_sink": result.paid,
            "violations": result.violations,
        }
        for database, found in results.items()
        for cell, result in found.items()
    ]
    path = Path(named)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(cells, indent=2) + "\n")
    return path
