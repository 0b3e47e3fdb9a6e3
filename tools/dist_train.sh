#!/usr/bin/env bash
# Train on several processes: tools/dist_train.sh CONFIG GPUS [arguments of
# tools/train.py]. On a machine without an accelerator GPUS counts processes,
# which then talk over gloo.
#
# Environment: NNODES, NODE_RANK, PORT, MASTER_ADDR as in OpenMMLab;
# NUMA=node|socket|exclusive|core-complex binds each process to its part of the
# machine. NCCL_* and all other variables reach the processes as they are.
set -euo pipefail

if [ $# -lt 2 ]; then
    echo "usage: $0 CONFIG GPUS [arguments of tools/train.py]" >&2
    exit 2
fi
. "$(dirname "${BASH_SOURCE[0]}")/_torchrun.sh"
torchrun_tool "$2" train.py "$1" "${@:3}"
