"""Which tasks of reasoning-gym 0.1.25 are used, and which answers they get: its `score_answer`, as read.

`tests/unit/suite/test_domains.py` finds every one that evaluates text as code; those are listed here.
"""

import re

NO_ANSWER = (
    "the library gives no answer of its own to its problems, by which its verifier could be checked"
)
RUNS_ANSWERS = "its verifier runs answers as Python, and right ones contain names"
NO_JSON = "its verifier compares with tuples, which rows of JSON do not have"

REFUSED = {
    "arc_agi": NO_JSON,
    "boxnet": NO_ANSWER,
    "codeio": "it runs the programs of its problems",
    "composite": "name its tasks themselves instead",
    "game_of_life_halting": "its verifier accepts any text where the answer is True",
    "graph_color": NO_ANSWER,
    "intermediate_integration": RUNS_ANSWERS,
    "list_functions": "its problems are others at each call",
    "polynomial_multiplication": RUNS_ANSWERS,
    "propositional_logic": NO_ANSWER,
    "puzzle24": "its verifier accepts other numbers than those of the problem",
    "rearc": NO_JSON,
    "rubiks_cube": NO_ANSWER,
    "rush_hour": NO_ANSWER,
    "simple_integration": RUNS_ANSWERS,
}
"""Task -> why it is refused."""
ANSWERS = {
    "binary_matrix": re.compile(r"[0-9\s]*"),
    # No powers, which the problem does not offer: a tower of them has no end.
    "countdown": re.compile(r"(?!.*\*\s*\*)[-+*/() 0-9]*"),
    "n_queens": re.compile(r"[Q_\s]*"),
    "spiral_matrix": re.compile(r"[-0-9\s]*"),
    "string_insertion": re.compile(r"[A-E]*"),
}
"""Task whose verifier evaluates answers as Python -> the answers that it gets; all others are wrong."""
ROWS_ALONE = {"bitwise_arithmetic", "number_sorting"}
"""Tasks that evaluate as Python what stands in their rows, and nothing of an answer."""
