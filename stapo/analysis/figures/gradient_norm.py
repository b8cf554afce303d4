"""Norm of the gradient of each step, before clipping."""

from functools import partial

from stapo.analysis.curves import over_steps
from stapo.exhibits import Exhibit

EXHIBIT = Exhibit(order=160, title="Gradient norm")
make = partial(over_steps, name="gradient_norm", title=EXHIBIT.title, label="gradient norm")
