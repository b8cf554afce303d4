# Sets `python` to a Python 3.11, 3.12 or 3.13; sourced by the scripts that need one before .venv exists.
for python in "${PYTHON:-}" python3.11 python3.12 python3.13 python3; do
    if "$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then break; fi
    python=
done
if [ -z "$python" ]; then
    echo "install: no Python 3.11, 3.12 or 3.13 found; set PYTHON=/path/to/python3.11" >&2
    exit 2
fi
