#!/usr/bin/env bash
# The tests against every nats-server, Python and dependency that is promised; what is missing here is said.
# scripts/compat.sh [servers] [pythons] [dependencies]; without arguments all three. Caches in .local/compat.
set -eu
CDPATH='' cd -- "$(dirname -- "$0")/.."
. scripts/venv.sh
use_venv dev
exec "$python" -X utf8 scripts/compat.py "$@"
