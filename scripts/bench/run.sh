#!/usr/bin/env bash
# How fast is the relay, beside what it is compared with. --help explains; README.md beside it, too.
set -eu
CDPATH='' cd -- "$(dirname -- "$0")/../.."
. scripts/venv.sh
use_venv bench
exec "$python" -X utf8 scripts/bench/bench.py "$@"
