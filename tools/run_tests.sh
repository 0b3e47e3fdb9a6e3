#!/usr/bin/env bash
# Set up the environment and run the tests; arguments go to pytest.
set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/_env.sh"
cd "$ROOT"
# Two processes of one thread each suit small tests better than one of two.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
exec "$PYTHON" -m pytest -n "${TEST_PROCESSES:-2}" --dist loadfile "$@"
