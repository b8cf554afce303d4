"""The specification of a chart, in the parts that tests ask for."""

from dataclasses import dataclass
from typing import Any

from stapo.analysis.draw import specification


@dataclass(frozen=True)
class Unit:
    """One mark with its rows."""

    mark: dict[str, Any]
    encoding: dict[str, Any]
    rows: list[dict[str, Any]]


@dataclass(frozen=True)
class Panel:
    """One coordinate system."""

    title: str
    units: list[Unit]

    def of(self, mark: str) -> list[Unit]:
        """Return the units of a kind of mark."""
        return [unit for unit in self.units if unit.mark["type"] == mark]

    def lines(self, pale: bool = False) -> dict[tuple[str, Any], list[tuple[Any, Any]]]:
        """Return (group, seed) -> points of the lines that are pale, or of those that are not."""
        found: dict[tuple[str, Any], list[tuple[Any, Any]]] = {}
        for unit in self.of("line"):
            if ("strokeOpacity" in unit.mark) == pale:
                for row in unit.rows:
                    found.setdefault((row["group"], row.get("seed")), []).append(
                        (row["x"], row["y"])
                    )
        return found


def panels(chart: Any) -> list[Panel]:
    """Return the panels of a chart."""
    found = specification(chart)
    data = found["datasets"]
    return [
        Panel(
            part.get("title", ""),
            [
                Unit(one["mark"], one["encoding"], data[one["data"]["name"]])
                for one in _units({"data": found.get("data"), **part})
            ],
        )
        for part in found["concat"]
    ]


def _units(part: dict[str, Any]) -> list[dict[str, Any]]:
    if "mark" in part:
        return [part]
    return [unit for layer in part["layer"] for unit in _units({"data": part.get("data"), **layer})]


def caption(chart: Any) -> str:
    """Return the caption of a chart."""
    found: str = specification(chart)["description"]
    return found
