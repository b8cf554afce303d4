"""Policy entropy over the steps."""

from functools import partial

from stapo.suite.analysis.curves import over_steps
from stapo.suite.exhibits import Exhibit

EXHIBIT = Exhibit(order=10, title="Policy entropy")
LABEL = "policy entropy [nats per token]"
make = partial(over_steps, name="entropy", title=EXHIBIT.title, label=LABEL, log=True)
