#!/usr/bin/env bash
# Everything that needs a GPU, in one run of at most ten minutes: build for
# the present GPU, operator tests on it, compute-sanitizer on the small ones,
# and times. Usage: bash tools/gpu_check.sh [FOLDER FOR THE RESULTS]
set -uo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
OUT=${1:-$ROOT/work_dirs/gpu_check}
PYTHON=${PYTHON:-python}
mkdir -p "$OUT"
cd "$ROOT"
failed=0

# Run one part within its share of the time; keep its output.
part() {
    local name=$1 seconds=$2
    shift 2
    echo "== $name"
    local begin=$SECONDS
    timeout "$seconds" "$@" >"$OUT/$name.log" 2>&1
    local rc=$?
    tail -n 4 "$OUT/$name.log"
    echo "== $name: exit status $rc after $((SECONDS - begin)) s"
    [ $rc -eq 0 ] || failed=1
}

"$PYTHON" -c 'import torch; assert torch.cuda.is_available()' || {
    echo 'gpu_check: torch sees no GPU; install a CUDA build of torch' >&2
    exit 2
}
export MMTURBOX_CUDA=1
part build 200 "$PYTHON" setup.py build_ext --inplace
part info 30 "$PYTHON" -m mmturbox.info
part tests 180 "$PYTHON" -m pytest -q -m gpu tests/test_ops
if command -v compute-sanitizer >/dev/null; then
    part sanitizer 90 compute-sanitizer --error-exitcode 9 "$PYTHON" -m pytest \
        -q -m gpu tests/test_ops -k 'empty or ragged or edge or reference'
else
    echo '== sanitizer: NOT RUN, compute-sanitizer is not on PATH'
fi
part times 90 "$PYTHON" ops/bench/run.py --device cuda --seconds 0.3 \
    --json "$OUT/times.json"
[ $failed -eq 0 ] && echo 'gpu_check: all parts passed' ||
    echo "gpu_check: a part failed, see $OUT"
exit $failed
