#!/usr/bin/env bash
# meshbench on a cluster by Open MPI's mpirun. Usage: mpirun_openmpi.sh HOSTFILE RANKS RANKS_PER_HOST WORDS...
#
#   scripts/launch/mpirun_openmpi.sh hosts 16 8 run model=gpt-10m mesh=dp2.tp8
#   MODE=cuda+mpi scripts/launch/mpirun_openmpi.sh hosts 16 8 run model=gpt3-1.3b mesh=dp2.tp8
#
# HOSTFILE has a line "NAME slots=8" for each host. Ranks fill one host after the other, so that the
# axis that order= names first stays within a host; a rank keeps to CORES_PER_RANK cores of its own,
# or one; on GPUs, to those next to its GPU (bind_gpu.sh). MESHBENCH names the program, which has to be at the same path on all hosts.
set -euo pipefail
[ $# -ge 4 ] || { sed -n '2,4s/^# //p' "$0" >&2; exit 2; }
hostfile=$1 ranks=$2 per_host=$3
shift 3
mode=${MODE:-mpi}
bind=(--map-by "ppr:$per_host:node:PE=${CORES_PER_RANK:-1}" --bind-to core) wrapper=()
case $mode in
  cuda*)
    bind=(--map-by "ppr:$per_host:node" --bind-to none)
    wrapper=("$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/bind_gpu.sh")
    ;;
esac
exec mpirun --hostfile "$hostfile" -n "$ranks" "${bind[@]}" --rank-by slot \
  "${wrapper[@]}" "${MESHBENCH:-meshbench}" "$@" mode="$mode"
