# Sourced by tools/dist_train.sh and tools/dist_test.sh.

# torchrun_tool N TOOL ARGS...: start tools/TOOL on N processes of this node.
torchrun_tool() {
    local here
    here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
    export PYTHONPATH="$here/..${PYTHONPATH:+:$PYTHONPATH}"
    exec "${PYTHON:-python}" -m torch.distributed.run \
        --nnodes="${NNODES:-1}" \
        --node-rank="${NODE_RANK:-0}" \
        --master-addr="${MASTER_ADDR:-127.0.0.1}" \
        --master-port="${PORT:-29500}" \
        --nproc-per-node="$1" \
        ${NUMA:+--numa-binding="$NUMA"} \
        "$here/$2" --launcher pytorch "${@:3}"
}
