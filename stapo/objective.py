"""The objective under a short name, by which token selections of a study's own import it."""

from stapo.core.objective import *  # noqa: F403
