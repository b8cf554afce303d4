"""What runs in a sandbox: limits itself, defines the function of an answer and calls it with arguments.

Usage: inside.py LIMITS <REQUEST. Everything that it writes after the first line is the answer's: the code can
write to the same place, and does not know what is expected. It imports nothing of this package.
"""

import json
import os
import random
import resource
import sys
import types


def main(limits: str) -> None:
    """Set the limits, answer a line when they hold, and then write the results as JSON."""
    for name, most in json.loads(limits).items():
        kind = getattr(resource, name)
        _, hard = resource.getrlimit(kind)
        limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (limit, limit))
    # What the code prints is no result.
    results = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    print(file=results, flush=True)
    request = json.load(sys.stdin)
    random.seed(0)  # A verdict is the same each time.
    # Where dataclasses and pickle look for names.
    sys.modules["answer"] = types.ModuleType("answer")
    names = vars(sys.modules["answer"])
    exec(compile(request["code"], "answer", "exec"), names)
    function = names[request["function"]]
    json.dump([function(*arguments) for arguments in request["arguments"]], results)
    results.flush()
    os._exit(0)  # No code at exit.


if __name__ == "__main__":
    main(sys.argv[1])
