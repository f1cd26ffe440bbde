#!/usr/bin/env bash
# Builds everything, GPU kernels where nvcc is found, and runs all tests. Usage: scripts/test.sh [--sanitize]
#
# --sanitize repeats those of ranks, streams and plans under the address and thread sanitizers.
# Exits with 0 if all passed, 1 if any failed.
set -euo pipefail
sanitize=no
case "${1:-}" in
  "") ;;
  --sanitize) sanitize=yes ;;
  *) echo "test: $1: no such option; usage: scripts/test.sh [--sanitize]" >&2; exit 2 ;;
esac
browser=yes
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

failed=()
step() {
  echo "== $*"
  "$@" || failed+=("$*")
}

# Test programs that put threads, memory and plans under strain, by name.
strained='(thread_comm|thread_send|thread_errors|shaped_world|coll_runner|cpu_device|hand_plan|live|sim|mesh_oracle|schedule|plan|validate|arena|builder)_test'

# sanitized PRESET: builds those programs under a sanitizer and runs them.
sanitized() {
  local -a programs=()
  cmake --preset "$1" --log-level=WARNING >/dev/null || return
  mapfile -t programs < <(ninja -C "build/$1" -t targets all | sed -nE "s/^($strained): phony$/\1/p")
  build "$1" --target "${programs[@]}" || return
  # The product of all options is long and has no more threads than the named cases; the libraries
  # of MPI are not instrumented.
  ctest --preset "$1" -j2 -E '_NOT_BUILT$|MeshProduct|MpiRanks'
}

build cpu
# Kernels of GPUs compile wherever there is a toolkit; tests run them on the host.
if have nvcc; then step build cuda --target mb_cuda; fi
step ctest --preset cpu -j3
if [ $sanitize = yes ]; then
  step sanitized asan
  step sanitized tsan
fi
# Of a file one after the other: they share what is slow to make, and names on this machine.
step .venv/bin/python -m pytest tests -q -n 2 --dist loadfile
step scripts/baselines.sh
if [ ${#failed[@]} -gt 0 ]; then
  printf 'test: failed: %s\n' "${failed[@]}" >&2
  exit 1
fi
