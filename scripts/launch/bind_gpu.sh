#!/usr/bin/env bash
# Runs a program on the cores next to its rank's GPU. Usage: bind_gpu.sh PROGRAM WORDS...
#
#   mpirun -n 8 --bind-to none scripts/launch/bind_gpu.sh meshbench run mode=cuda+mpi mesh=dp8
#
# The rank's place on its host, as the launcher tells it, is the number of its GPU, counted by PCI
# address as Meshbench then counts them too; with more ranks than GPUs it starts again at the first.
# UCX_NET_DEVICES, unless it is set, becomes the RDMA card that shares most PCI bridges with the GPU,
# else one of its NUMA node; NCCL looks for itself. 'meshbench doctor' shows both. Without a GPU or
# without what tells of it, the program runs unbound. SYSTEM_ROOT stands for / (tests).
set -euo pipefail
[ $# -ge 1 ] || { sed -n '2,4s/^# //p' "$0" >&2; exit 2; }
root=${SYSTEM_ROOT:-}
place=${OMPI_COMM_WORLD_LOCAL_RANK:-${MPI_LOCALRANKID:-${PMI_LOCAL_RANK:-${SLURM_LOCALID:-0}}}}
export CUDA_DEVICE_ORDER=PCI_BUS_ID

# path_of LINK: the folders of a device below its root complex, a line each, from the outermost.
path_of() { readlink -f "$1" | tr / '\n' | grep -E '^[0-9a-f]+:[0-9a-f]+:[0-9a-f]+\.[0-9]$' || true; }
node_of() { cat "$1/numa_node" 2>/dev/null || echo -1; }
# near GPU CARD: how near two devices are, more is nearer; bridges in common, then the NUMA node.
near() {
  local shared node
  shared=$(comm -12 <(path_of "$1" | sort) <(path_of "$2" | sort) | wc -l)
  node=$(node_of "$1")
  echo $((2 * shared + (node >= 0 && node == $(node_of "$2"))))
}

shopt -s nullglob
gpus=("$root"/proc/driver/nvidia/gpus/*)
if [ -n "${CUDA_VISIBLE_DEVICES:-}" ] && [[ $CUDA_VISIBLE_DEVICES =~ ^[0-9]+(,[0-9]+)*$ ]]; then
  all=("${gpus[@]}")
  gpus=()
  for index in ${CUDA_VISIBLE_DEVICES//,/ }; do gpus+=(${all[index]:+"${all[index]}"}); done
fi
[ ${#gpus[@]} -gt 0 ] || exec "$@"
gpu=$root/sys/bus/pci/devices/$(basename "${gpus[place % ${#gpus[@]}]}")

if [ -z "${UCX_NET_DEVICES:-}" ]; then
  best=-1
  for card in "$root"/sys/class/infiniband/*; do
    nearness=$(near "$gpu" "$card/device")
    if [ "$nearness" -gt "$best" ]; then
      best=$nearness
      UCX_NET_DEVICES=$(basename "$card"):1
    fi
  done
  [ "$best" -lt 0 ] || export UCX_NET_DEVICES
fi
cores=$(cat "$gpu/local_cpulist" 2>/dev/null || true)
# A container or a batch system may not allow any of them.
if [ -n "$cores" ] && taskset -c "$cores" true >/dev/null 2>&1; then exec taskset -c "$cores" "$@"; fi
exec "$@"
