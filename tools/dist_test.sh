#!/usr/bin/env bash
# Test on several processes: tools/dist_test.sh CONFIG CKPT GPUS [arguments of
# tools/test.py]. Environment as for tools/dist_train.sh.
set -euo pipefail

if [ $# -lt 3 ]; then
    echo "usage: $0 CONFIG CKPT GPUS [arguments of tools/test.py]" >&2
    exit 2
fi
. "$(dirname "${BASH_SOURCE[0]}")/_torchrun.sh"
torchrun_tool "$3" test.py "$1" "$2" "${@:4}"
