# Sourced by the scripts beside it. `use_venv EXTRA` makes .venv, or uses it again, with this package and the
# dependencies of that extra, and sets $python. READY_PYTHON names a Python that has them all already: it is
# used as it is. PYTHON is the one to make .venv with.

say() { printf '%s\n' "$*" >&2; }

# Whether $1 is a Python that will do: it is run, since a pyenv shim exists for versions that are not selected.
can() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1; }

# Sets $found to a Python that can make virtual environments.
find_python() {
    local name without="" names="python3.14 python3.13 python3.12 python3.11 python3.10 python3"
    for name in "${PYTHON:-}" $names; do
        if [ -n "$name" ] && can "$name"; then
            if "$name" -c 'import ensurepip, venv' >/dev/null 2>&1; then
                found=$name
                return 0
            fi
            without=${without:-$name}
            [ "$name" != "${PYTHON:-}" ] || break
        fi
    done
    if [ -n "$without" ]; then
        say "$without cannot make virtual environments: its modules venv and ensurepip are not installed." \
            "On Debian and Ubuntu they are in the package" \
            "$("$without" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])') (or python3-venv)."
    else
        say "Python 3.10 or later is needed, and none was found as \$PYTHON, python3.14 to python3.10 or python3." \
            "Install one, or name it: PYTHON=/path/to/python3 $0"
    fi
    return 1
}

# Version and place: a .venv made by a Python that was since replaced, or for another folder, does not match.
mark() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2], sys.argv[1])' "$PWD" 2>/dev/null; }

use_venv() {
    if [ -n "${READY_PYTHON:-}" ]; then
        python=$READY_PYTHON
        return
    fi
    if [ -n "${PYTHON:-}" ] && ! can "$PYTHON"; then
        say "PYTHON=$PYTHON does not run, or is older than Python 3.10: it is not used."
    fi
    python=$PWD/.venv/bin/python
    local made
    made=$(cat .venv/made-for 2>/dev/null || true)
    if [ -z "$made" ] || [ "$(mark "$python")" != "$made" ] ||
        { [ -n "${PYTHON:-}" ] && can "$PYTHON" && [ "$(mark "$PYTHON")" != "$made" ]; }; then
        find_python || exit 1
        say "Making a virtual environment in .venv with $("$found" -V 2>&1) ..."
        rm -rf .venv
        trap 'rm -rf .venv' EXIT
        "$found" -m venv .venv || { say "$found -m venv failed."; exit 1; }
        mark "$python" >.venv/made-for
        trap - EXIT
    fi
    # Each extra has its own stamp: what setup.cfg said when it was installed.
    if ! cmp -s setup.cfg ".venv/installed-$1"; then
        say "Installing .[$1] into .venv ..."
        "$python" -m pip install --quiet --quiet --disable-pip-version-check --use-pep517 --editable ".[$1]" || {
            say "Installing failed; see above."
            exit 1
        }
        cp setup.cfg ".venv/installed-$1"
    fi
}
