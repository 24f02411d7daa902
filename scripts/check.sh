#!/usr/bin/env bash
# Style and types: ruff, and mypy as strict as setup.cfg says.
set -eu
CDPATH='' cd -- "$(dirname -- "$0")/.."
. scripts/venv.sh
use_venv dev
"$python" -m ruff check telegram_connector tests scripts
"$python" -m ruff format --check telegram_connector tests scripts
"$python" -m mypy
"$python" -m mypy scripts
