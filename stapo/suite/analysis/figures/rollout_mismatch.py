"""By how much the log-probabilities of vLLM and of the trainer differ."""

from functools import partial

from stapo.suite.analysis.curves import over_steps
from stapo.suite.exhibits import Exhibit

EXHIBIT = Exhibit(order=170, title="Mismatch of vLLM and trainer", needs="vllm")
LABEL = "mean |log p(vLLM) - log p(trainer)| [nats per token]"
make = partial(over_steps, name="rollout_mismatch", title=EXHIBIT.title, label=LABEL)
