"""Mean reward of the responses of each step."""

from functools import partial

from stapo.suite.analysis.curves import over_steps
from stapo.suite.exhibits import Exhibit

EXHIBIT = Exhibit(order=20, title="Reward")
make = partial(over_steps, name="reward", title=EXHIBIT.title, label="mean reward [-1 to 1]")
