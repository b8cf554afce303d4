"""Share of the tokens at a position that S2T silences."""

from typing import TYPE_CHECKING, Any

from stapo.exhibits import Exhibit

if TYPE_CHECKING:
    from stapo.analysis.artefacts import Artefacts

EXHIBIT = Exhibit(
    order=120, title="Silenced tokens by position", sources=frozenset({"tokens", "metrics"})
)


def make(artefacts: "Artefacts") -> Any:
    """Return the share of silenced tokens by relative and by absolute position: two panels per size."""
    from stapo.analysis import charts
    from stapo.analysis.evidence.positions import by_absolute_position, by_relative_position
    from stapo.analysis.evidence.recorded import NO_SILENCED, recorded

    found, panels = recorded(artefacts), []
    y = charts.y_axis("silenced by S2T [%]", log=True)
    kinds: Any = (
        (
            "relative",
            {"label": "position / length of the response", "low": 0, "high": 1},
            by_relative_position,
        ),
        (
            "absolute",
            {"label": "position in the response, from 1", "log": True},
            by_absolute_position,
        ),
    )
    rows = {
        (size, name): [row for one in found if one.size == size for row in _rows(one, ranges(one))]
        for size in artefacts.study.run.sizes
        for name, _, ranges in kinds
    }
    group = charts.colours(artefacts.titles(), (row["group"] for of in rows.values() for row in of))
    for size in artefacts.study.run.sizes:
        for name, axis, _ in kinds:
            layers = charts.lines(rows[size, name], charts.x_axis(**axis), y, group)
            panels.append(charts.panel(layers, f"{size}, {name} position"))
    missing = "" if any(one.silenced.any() for one in found) else f" {NO_SILENCED}"
    caption = (
        "Share of the tokens at a position that S2T silences, or would silence, with 95 % intervals. "
        "Ranges of positions without a silenced token have no point, because a logarithmic axis has no 0."
    )
    return charts.grid(panels, caption + missing, columns=2, share_y=True)


def _rows(one: Any, ranges: list[Any]) -> list[dict[str, Any]]:
    """Return the rows of a method; none if it silences nothing."""
    nan = float("nan")
    shown = [
        [100 * end for end in (part.value, part.low, part.high)] if part.value > 0 else [nan] * 3
        for part in (place.silenced for place in ranges)
    ]
    if not any(value > 0 for value, *_ in shown):
        return []
    return [
        # The lower end of an interval may be 0, which the axis has no place for.
        {"x": place.x, "y": value, "low": low if low > 0 else nan, "high": high, "group": one.title}
        for place, (value, low, high) in zip(ranges, shown, strict=True)
    ]
