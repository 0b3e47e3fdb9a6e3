#!/usr/bin/env bash
# Test on several processes: tools/dist_test.sh CONFIG CKPT GPUS [arguments of
# tools/test.py]. Environment as for tools/dist_train.sh.
set -euo pipefail

if [ $# -lt 3 ]; then
    echo "usage: $0 CONFIG CKPT GPUS [arguments of tools/test.py]" >&2
    exit 2
fi
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export PYTHONPATH="$HERE/..${PYTHONPATH:+:$PYTHONPATH}"
exec "${PYTHON:-python}" -m torch.distributed.run \
    --nnodes="${NNODES:-1}" \
    --node-rank="${NODE_RANK:-0}" \
    --master-addr="${MASTER_ADDR:-127.0.0.1}" \
    --master-port="${PORT:-29500}" \
    --nproc-per-node="$3" \
    ${NUMA:+--numa-binding="$NUMA"} \
    "$HERE/test.py" "$1" "$2" --launcher pytorch "${@:4}"
