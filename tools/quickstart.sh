#!/usr/bin/env bash
# From a bare checkout to a measured comparison: sets up the environment, makes
# a small synthetic set, trains the quick-start config stock and turbo, shows
# the plan and times both. Everything lands in work_dirs/quickstart.
set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/_env.sh"
cd "$ROOT"
CONFIG=configs/quickstart/centerpoint-pillar_tiny_1xb2_synthetic-nus.py
OUT=work_dirs/quickstart
# On few cores the data workers need some of them; threads that wait for a core
# in turns make stock and turbo slower alike, and the times unsteady.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
mkdir -p "$OUT"

# A few training iterations; the whole log goes to $OUT/$1.log.
train() {
    say "training $1 (two epochs)"
    rm -rf "${OUT:?}/$1"
    "$PYTHON" tools/train.py "$CONFIG" --work-dir "$OUT/$1" --cfg-options \
        val_cfg=None val_dataloader=None val_evaluator=None \
        default_hooks.logger.interval=5 2>&1 | tee "$OUT/$1.log" |
        sed -n -u '/Epoch(train)/p' ||
        { tail -n 20 "$OUT/$1.log" >&2; stop "see $OUT/$1.log"; }
}

say "making data/synthetic-nuscenes (once)"
"$PYTHON" tools/create_data.py synthetic-nuscenes \
    --out data/synthetic-nuscenes --workers 2
say "the plan: what turbo changes in $CONFIG"
"$PYTHON" tools/explain.py "$CONFIG" --json "$OUT/plan.json"
MMTURBOX=0 train stock
train turbo
say "timing stock and turbo in one interleaved run"
"$PYTHON" tools/benchmark.py "$CONFIG" --work-dir "$OUT/benchmark" \
    --json "$OUT/report.json" --plot "$OUT/report.png"
say "done:"
echo "  report  $ROOT/$OUT/report.json"
echo "  plot    $ROOT/$OUT/report.png"
echo "  plan    $ROOT/$OUT/plan.json"
echo "  logs    $ROOT/$OUT/stock.log, turbo.log (checkpoints in stock/, turbo/)"
echo "  next    bash tools/dist_train.sh $CONFIG 2"
