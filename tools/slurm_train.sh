#!/usr/bin/env bash
# Train under Slurm: tools/slurm_train.sh PARTITION JOB_NAME CONFIG WORK_DIR
# [arguments of tools/train.py].
#
# Environment: GPUS (8 in all), GPUS_PER_NODE (8), CPUS_PER_TASK (5),
# SRUN_ARGS as in OpenMMLab. The environment, NCCL_* included, reaches the
# tasks as it is.
set -euo pipefail

if [ $# -lt 4 ]; then
    echo "usage: $0 PARTITION JOB_NAME CONFIG WORK_DIR [arguments]" >&2
    exit 2
fi
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export PYTHONPATH="$HERE/..${PYTHONPATH:+:$PYTHONPATH}"
GPUS=${GPUS:-8}
GPUS_PER_NODE=${GPUS_PER_NODE:-8}
# SRUN_ARGS holds several words on purpose.
# shellcheck disable=SC2086
exec srun -p "$1" \
    --job-name="$2" \
    --gres="gpu:$GPUS_PER_NODE" \
    --ntasks="$GPUS" \
    --ntasks-per-node="$GPUS_PER_NODE" \
    --cpus-per-task="${CPUS_PER_TASK:-5}" \
    --kill-on-bad-exit=1 \
    ${SRUN_ARGS:-} \
    "${PYTHON:-python}" -u "$HERE/train.py" "$3" --work-dir="$4" \
    --launcher=slurm "${@:5}"
