#!/usr/bin/env bash
# The whole relay on this machine: a real nats-server, the sandbox Bot API, the worker and a few messages.
# scripts/run_local.sh [--once] [--telegram] [--nats] [--yes]; --help explains. Ctrl-C stops all of it.
set -eu
CDPATH='' cd -- "$(dirname -- "$0")/.."
. scripts/venv.sh
use_venv local
exec "$python" -X utf8 scripts/run_local.py "$@"
