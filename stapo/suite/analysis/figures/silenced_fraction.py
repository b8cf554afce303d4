"""Share of the tokens of each step that are silenced."""

from functools import partial

from stapo.suite.analysis.curves import over_steps
from stapo.suite.exhibits import PAPER_SILENCED, Exhibit

EXHIBIT = Exhibit(order=50, title="Silenced candidates")

make = partial(
    over_steps,
    name="silenced_fraction",
    title=EXHIBIT.title,
    label="silenced [% of tokens]",
    log=True,
    reference=(PAPER_SILENCED, "paper: below 0.01 % nearly throughout"),
)
