#!/usr/bin/env bash
# The test suite, in a virtual environment of its own making. Arguments go to pytest.
set -eu
CDPATH='' cd -- "$(dirname -- "$0")/.."
. scripts/venv.sh
use_venv dev
exec "$python" -m pytest "$@"
