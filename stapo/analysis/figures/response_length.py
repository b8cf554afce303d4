"""Mean length of the responses of each step."""

from functools import partial

from stapo.analysis.curves import over_steps
from stapo.exhibits import Exhibit

EXHIBIT = Exhibit(order=150, title="Response length")
make = partial(
    over_steps, name="response_length", title=EXHIBIT.title, label="response length [tokens]"
)
