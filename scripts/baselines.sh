#!/usr/bin/env bash
# Holds virtual time, traffic and memory of fixed cases to results/baselines/.
# Usage: scripts/baselines.sh [--refresh REASON]
#
# --refresh writes the rows anew and puts the reason into results/baselines/reasons.txt.
# What is exact gates on any machine, what is counted on the machine of the rows only; times advise.
# Exits as mb gate does.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
program=${MESHBENCH:-build/cpu/bench/meshbench}
kept=results/baselines/rows.jsonl
sim="sim machine=h100x8"
live="run model=gpt-1m global_batch=4 steps=2 warm_up=1"
cases=(
  "$sim case=textbook-100b"
  "$sim model=gpt3-1.3b dtype=bf16 global_batch=64 mesh=dp8 zero=3"
  "$sim model=gpt3-1.3b dtype=bf16 global_batch=64 mesh=dp2.tp2.pp2 recompute=full"
  "$sim model=gpt3-1.3b dtype=bf16 global_batch=64 mesh=pp8 schedule=zb-h1"
  "$sim model=gpt3-1.3b dtype=bf16 global_batch=64 mesh=cp8"
  "$live mesh=dp2 zero=1"
  "$live mesh=pp2.tp2 recompute=full"
)
case "${1:-}" in
  "") ;;
  --refresh) [ -n "${2:-}" ] || { echo "baselines: --refresh wants a reason" >&2; exit 2; } ;;
  *) echo "baselines: $1: no such option; usage: scripts/baselines.sh [--refresh REASON]" >&2; exit 2 ;;
esac
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for number in "${!cases[@]}"; do
  read -ra words <<<"${cases[number]}"
  "$program" "${words[@]}" -q --no-progress -o "$folder/$number.json" >/dev/null
done
if [ "${1:-}" = --refresh ]; then
  mkdir -p results/baselines
  .venv/bin/python -c 'import json, sys
for name in sys.argv[1:]: print(json.dumps(json.load(open(name))))' "$folder"/*.json >"$folder/rows"
  mv "$folder/rows" $kept
  echo "$2" >>results/baselines/reasons.txt
  exit
fi
.venv/bin/mb gate --any-fingerprint $kept "$folder"
