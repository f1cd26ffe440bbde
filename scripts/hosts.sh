#!/usr/bin/env bash
# Several hosts on one machine, joined by a slow network, and a command on all of them by mpirun.
#
#   scripts/hosts.sh [--hosts N] [--ranks N] [--rate RATE] [--delay TIME] [--mpi openmpi|mpich] -- COMMAND...
#
#   scripts/hosts.sh --hosts 2 --ranks 2 --rate 1gbit -- \
#     build/cpu/bench/meshbench run mode=mpi model=gpt-1m mesh=dp2
#
# Each host is a network namespace with an address and a host name of its own, so that MPI takes it
# for a machine and talks to it by TCP; they share cores, memory and the clock. RATE and TIME are as
# tc takes them, of each host's link to a switch, in the direction that leaves the host; a delay wants
# a kernel with netem. Removes what it has made. Exits with the command's code, 2 for a wrong call, 77
# where namespaces are not allowed or netem is not there.
set -euo pipefail

die() { echo "hosts: $*" >&2; exit 2; }
hosts=2 ranks='' rate=1gbit delay='' mpi=openmpi
while [ $# -gt 0 ]; do
  case "$1" in
    --hosts | --ranks | --rate | --delay | --mpi) [ $# -ge 2 ] || die "$1 wants a value" ;;
  esac
  case "$1" in
    --hosts) hosts=$2 ;;
    --ranks) ranks=$2 ;;
    --rate) rate=$2 ;;
    --delay) delay=$2 ;;
    --mpi) mpi=$2 ;;
    --) shift; break ;;
    *) die "$1: no such option; usage: scripts/hosts.sh [--hosts N] [--ranks N] [--rate RATE] [--delay TIME] [--mpi openmpi|mpich] -- COMMAND..." ;;
  esac
  shift 2
done
[ $# -gt 0 ] || die "no command; give one after --"
ranks=${ranks:-$hosts}
[[ $hosts =~ ^[1-9][0-9]?$ ]] || die "--hosts $hosts: give 1 to 99"
[[ $ranks =~ ^[1-9][0-9]*$ ]] || die "--ranks $ranks: give a number of ranks, at least 1"
((ranks % hosts == 0)) || die "--ranks $ranks does not divide over --hosts $hosts"
launcher=$(command -v "mpirun.$mpi") || die "--mpi $mpi: there is no mpirun.$mpi; install openmpi-bin or mpich"

# Short, as names of interfaces have 15 letters; of this process, as others may run beside it.
name=mb$$
work=$(mktemp -d)
clean_up() {
  local host
  for ((host = 1; host <= hosts; ++host)); do
    ip netns pids "$name-$host" 2>/dev/null | xargs -r kill 2>/dev/null || true
    ip netns delete "$name-$host" 2>/dev/null || true
  done
  ip netns delete "$name-net" 2>/dev/null || true
  rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
if ! command -v ip >/dev/null || ! command -v tc >/dev/null || ! ip netns add "$name-net" 2>"$work/why"; then
  echo "hosts: network namespaces want iproute2, root and CAP_NET_ADMIN: $(cat "$work/why" 2>/dev/null)" >&2
  exit 77
fi

# The switch has a namespace too, so that nothing shows outside.
ip -n "$name-net" link add switch type bridge
ip -n "$name-net" link set switch up
list=''
for ((host = 1; host <= hosts; ++host)); do
  space=$name-$host
  ip netns add "$space"
  ip link add "port$host" netns "$name-net" type veth peer name eth0 netns "$space"
  ip -n "$name-net" link set "port$host" master switch up
  ip -n "$space" address add "10.77.0.$host/24" dev eth0
  ip -n "$space" link set lo up
  ip -n "$space" link set eth0 up
  ip netns exec "$space" tc qdisc add dev eth0 root handle 1: tbf rate "$rate" burst 128kb latency 100ms ||
    die "--rate $rate: tc does not take it; give for example 1gbit"
  if [ -n "$delay" ] && ! ip netns exec "$space" tc qdisc add dev eth0 parent 1: netem delay "$delay" limit 100000; then
    echo "hosts: --delay $delay: this kernel has no netem, or tc does not take the time" >&2
    exit 77
  fi
  printf '10.77.0.%s host%s\n' "$host" "$host" >>"$work/hosts"
  list+=,host$host:$((ranks / hosts))
done
printf '127.0.0.1 localhost\n' >>"$work/hosts"

# Instead of ssh: HOST COMMAND... on that host, under its name.
cat >"$work/on" <<SHELL
#!/usr/bin/env bash
while [[ \$1 == -* ]]; do shift; done
host=\${1#*@}; shift
exec ip netns exec "$name-\${host#host}" unshare --uts --mount bash -c '
  hostname "\$1" && mount --bind "$work/hosts" /etc/hosts && shift && exec bash -c "\$*"' on "\$host" "\$@"
SHELL
chmod +x "$work/on"

# mpirun itself is on host1. TCP alone, even within a host, as one kernel would offer shared memory. Not
# bound: every host would give its first rank the first core of the one machine.
if [ "$mpi" = openmpi ]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  start=("$launcher" --oversubscribe --bind-to none --host "${list#,}" -n "$ranks"
    --mca plm_rsh_agent "$work/on" --mca plm_rsh_no_tree_spawn 1
    --mca pml ob1 --mca btl self,tcp,vader --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0)
else
  start=("$launcher" -hosts "${list#,}" -n "$ranks" -launcher ssh -launcher-exec "$work/on" -iface eth0
    -genv UCX_TLS "tcp,self" -genv UCX_NET_DEVICES eth0 -genv HYDRA_IFACE eth0)
fi
command_line=$(printf '%q ' "${start[@]}" "$@")
"$work/on" host1 "cd $(printf '%q' "$PWD") && exec $command_line"
