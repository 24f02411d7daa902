#!/usr/bin/env bash
# How fast is the relay: against a bare requests loop, side by side. --help explains; README.md beside it, too.
set -eu
CDPATH='' cd -- "$(dirname -- "$0")/../.."
. scripts/venv.sh
use_venv local
exec "$python" -X utf8 scripts/bench/bench.py "$@"
