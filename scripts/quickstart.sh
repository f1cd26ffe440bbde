#!/usr/bin/env bash
# Builds meshbench, trains a small GPT on seven meshes of up to 8 ranks and with strategies that save
# memory, and plots where the time and the memory went. Usage: scripts/quickstart.sh
#
# Leaves rows, traces, timelines and plots in results/quickstart.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
build cpu --target meshbench

out=results/quickstart
text=$out/text.txt
rm -rf $out
mkdir -p $out

# A real text that is at hand everywhere: this project's own documents and sources.
git ls-files -z '*.md' '*.h' '*.cc' '*.py' | LC_ALL=C sort -z | xargs -0 cat -- >$text
echo "Training text: this project's documents and sources, $(wc -c <$text) bytes, in $text"

# train FOLDER NAME key=value...: one launch; its row, trace and timeline go below results/quickstart.
train() {
  local folder=$1 name=$2
  shift 2
  echo "  $*"
  build/cpu/bench/meshbench run model=gpt-1m "$@" micro_batch=1 --quiet --no-progress \
    --out $out/"$folder/$name".json --trace $out/traces/"$name".json \
    --timeline $out/timelines/"$name".txt >/dev/null
}

echo "Seven meshes:"
meshes=(dp4 tp4 pp4 dp2.tp2 dp2.pp2 pp2.tp2 dp2.pp2.tp2)
rows=("${meshes[@]/#/$out/rows/}")
rows=("${rows[@]/%/.json}")
for mesh in "${meshes[@]}"; do
  train rows "$mesh" mesh="$mesh" data=$text global_batch=16 steps=8
done

echo "One pipeline of four stages, measured and in virtual time:"
for schedule in gpipe 1f1b; do
  for m in 2 4 8 16; do
    train bubble pp4-$schedule-m$m mesh=pp4 schedule=$schedule data=$text global_batch=$m steps=3 verify=off
    train bubble pp4-$schedule-m$m-sim mesh=pp4 schedule=$schedule global_batch=$m mode=sim machine=cpu
  done
done

echo "Schedules with more chunks and with the backward in two halves, in virtual time:"
for schedule in 1f1b interleaved zb-h1 zb-v; do
  train schedules $schedule mesh=pp4 schedule=$schedule model.layers=8 global_batch=8 mode=sim machine=cpu
done

echo "Memory of data ranks that divide optimizer state, gradients and parameters:"
for zero in 0 1 2 3; do
  train zero zero$zero mesh=dp4 zero=$zero global_batch=4 warm_up=0 steps=1 verify=off bucket=256KiB
done

echo "Memory of activations that are divided, computed anew or moved away:"
activations() { train activations "$@" mesh=tp2 global_batch=2 warm_up=0 steps=1 verify=off; }
activations none
activations sequence sequence_parallel=on
activations recompute recompute=full
activations offload offload=activations

echo "Plots:"
plot() { .venv/bin/mb plot "$@" --out $out/plots; }
plot breakdown "${rows[@]}"
plot memory "${rows[@]}"
plot bubble $out/bubble
plot memory $out/zero --name zero
plot memory $out/activations/{none,sequence,recompute,offload}.json --name activations
plot gantt $out/schedules/{1f1b,interleaved,zb-h1,zb-v}.json --name schedules
plot gantt $out/bubble/pp4-{1f1b,gpipe}-m8.json $out/bubble/pp4-{1f1b,gpipe}-m8-sim.json

echo "All of it on one page:"
.venv/bin/mb report $out/{rows,schedules,bubble,zero,activations} -o $out/report.html

echo
.venv/bin/mb rows "${rows[@]}"
