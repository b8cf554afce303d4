"""The specification of a chart, in the parts that tests ask for."""

from typing import Any, NamedTuple

from stapo.suite.analysis.charts import specification


class Unit(NamedTuple):
    """One mark with its rows."""

    mark: dict[str, Any]
    encoding: dict[str, Any]
    rows: list[dict[str, Any]]


class Panel(NamedTuple):
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
            for row in unit.rows if ("strokeOpacity" in unit.mark) == pale else ():
                line = found.setdefault((row["group"], row.get("seed")), [])
                line.append((row["x"], row["y"]))
        return found


def panels(chart: Any) -> list[Panel]:
    found = specification(chart)

    def units(part: dict[str, Any], data: dict[str, Any]) -> list[Unit]:
        data = part.get("data", data)
        if "mark" in part:
            return [Unit(part["mark"], part["encoding"], found["datasets"][data["name"]])]
        return [unit for layer in part["layer"] for unit in units(layer, data)]

    return [
        Panel(one.get("title", ""), units(one, found.get("data", {}))) for one in found["concat"]
    ]


def caption(chart: Any) -> str:
    return str(specification(chart)["description"])
