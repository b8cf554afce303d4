"""How far apart step checkpoints are where a study gives no number of steps."""

LEAST_SECONDS = 180.0
"""Between two checkpoints; a kill loses about this at most."""
MOST_SHARE = 1 / 30
"""Of the time of a training that is spent on checkpoints; if one takes long, they are further apart."""


def seconds_between(saving: float) -> float:
    """Return the seconds between checkpoints of which one takes `saving` seconds."""
    return max(LEAST_SECONDS, saving / MOST_SHARE)
