# Sets up the environment; sourced by tools/quickstart.sh and
# tools/run_tests.sh. Afterwards PYTHON is the interpreter to use and mmturbox
# is installed in it, editable, with its operators built.
#
# A torch >= 2.10 that is there already (a cloud image's CUDA build) is used
# and never hidden or replaced: directly in an active venv or conda
# environment, else through a .venv that sees it. Without one, .venv gets its
# own. What was installed and built is stamped, so that a second run calls no
# package manager and works offline.

TORCH=torch==2.13.0
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() { printf '[%(%H:%M:%S)T] %s\n' -1 "$*"; }
stop() { printf 'error: %s\n' "$*" >&2; exit 1; }

# Prints the version of the torch of interpreter $1 if it serves.
torch_of() {
    "$1" -c 'import re, torch
v = torch.__version__
assert tuple(int(n) for n in re.findall(r"\d+", v)[:2]) >= (2, 10)
print(v)' 2>/dev/null
}

# Makes $ROOT/.venv from interpreter $1; further arguments go to venv.
make_venv() {
    say "creating .venv from $1 ${*:2}"
    "$1" -m venv "${@:2}" "$ROOT/.venv" || stop "no virtual environment" \
        "could be made; on Debian and Ubuntu: apt-get install python3-venv"
}

choose_python() {
    local base active=
    base=$(command -v python || command -v python3) ||
        stop "there is no python on PATH; install Python 3.10 or later"
    "$base" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
        stop "$base is older than Python 3.10"
    "$base" -c 'import sys; sys.exit(sys.prefix == sys.base_prefix)' &&
        active=1
    [ -n "${CONDA_PREFIX:-}" ] && [ "$base" -ef "$CONDA_PREFIX/bin/python" ] &&
        active=1
    if [ -n "$active" ] && torch_of "$base" >/dev/null; then
        PYTHON=$base
        return
    fi
    PYTHON=$ROOT/.venv/bin/python
    if [ -x "$PYTHON" ] && torch_of "$PYTHON" >/dev/null; then
        return
    fi
    if torch_of "$base" >/dev/null; then
        make_venv "$base" --system-site-packages
    else
        [ -x "$PYTHON" ] || make_venv "$base"
        say "installing $TORCH"
        "$PYTHON" -m pip install --disable-pip-version-check "$TORCH"
    fi
    torch_of "$PYTHON" >/dev/null ||
        stop "torch in $ROOT/.venv does not load; remove .venv and try again"
}

# A digest of the files named on stdin, and of the words given.
digest() { { echo "$*"; xargs cat; } | sha256sum | cut -d ' ' -f 1; }

# Whether the stamp file $1 holds $2.
stamped() { [ -f "$1" ] && [ "$(cat "$1")" = "$2" ]; }

install_requirements() {
    local pip=("$PYTHON" -m pip install --disable-pip-version-check)
    local folder=$ROOT/requirements torch=$1 prefix=$2 want pins
    local stamp=$prefix/.mmturbox-requirements
    want=$(ls "$folder"/*.txt | digest "$torch")
    stamped "$stamp" "$want" && return
    say "installing the requirements for torch $torch (minutes, once)"
    pins=$(mktemp)
    # Nothing may exchange the torch that serves. Only an environment of our
    # own is held to the versions seen to work together.
    echo "torch==$torch" >"$pins"
    if [ "$PYTHON" = "$ROOT/.venv/bin/python" ] && "$PYTHON" -c 'import sys
sys.exit(sys.version_info < (3, 11))' && ! grep -qi \
        'include-system-site-packages = true' "$ROOT/.venv/pyvenv.cfg"; then
        cat "$folder/constraints.txt" >>"$pins"
    fi
    "${pip[@]}" -c "$pins" -r "$folder/build.txt" -r "$folder/mmdet3d.txt" \
        -r "$folder/dev.txt"
    "${pip[@]}" --no-deps -r "$folder/mmdet3d-nodeps.txt"
    rm -f "$pins"
    # opencv-python wants a desktop's libGL, which servers often lack.
    if ! "$PYTHON" -c 'import cv2' 2>/dev/null; then
        "${pip[@]}" --force-reinstall --no-deps 'opencv-python-headless<5'
    fi
    echo "$want" >"$stamp"
}

build_operators() {
    local torch=$1 stamp=$2/.mmturbox-build want
    want=$(find "$ROOT/ops/csrc" "$ROOT/setup.py" -type f | sort |
        digest "$torch" "$ROOT")
    stamped "$stamp" "$want" && ls "$ROOT"/mmturbox/_C*.so >/dev/null 2>&1 &&
        return
    say "building the operators and installing mmturbox (minutes, once)"
    "$PYTHON" -m pip install --disable-pip-version-check --no-deps \
        --no-build-isolation -e "$ROOT"
    echo "$want" >"$stamp"
}

setup_environment() {
    local torch prefix
    choose_python
    torch=$(torch_of "$PYTHON")
    prefix=$("$PYTHON" -c 'import sys; print(sys.prefix)')
    # Where the environment itself is read-only, the stamps stay here.
    [ -w "$prefix" ] || { prefix=$ROOT/build && mkdir -p "$prefix"; }
    say "python: $PYTHON, torch $torch"
    install_requirements "$torch" "$prefix"
    build_operators "$torch" "$prefix"
    export PYTHON
}

setup_environment
