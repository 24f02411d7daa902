#!/usr/bin/env bash
# The test suite, in a virtual environment of its own making. Arguments go to pytest. Four processes, since the
# tests mostly wait for servers; -n 0 for one, which also prints how soon delivery resumed after each fault.
set -eu
CDPATH='' cd -- "$(dirname -- "$0")/.."
. scripts/venv.sh
use_venv dev
exec "$python" -m pytest -n 4 "$@"
