#!/usr/bin/env bash
# A long run with kills of everything and faulty answers: is anything lost, doubled, out of order or told?
# scripts/soak.sh [--messages N] [--chats N] [--relay-kills N] [--server-kills N] [--faulty SHARE]
#                 [--connectors N] [--ledger] [--park] [--seed N] [--minutes N] [--json]; --help explains. Ctrl-C stops
#                 all of it.
set -eu
CDPATH='' cd -- "$(dirname -- "$0")/.."
. scripts/venv.sh
use_venv dev
exec "$python" -X utf8 scripts/soak/soak.py "$@"
