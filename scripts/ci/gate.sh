#!/usr/bin/env bash
# Builds meshbench of a base commit and of this tree in one job, and gates this tree on the base.
# Usage: scripts/ci/gate.sh BASE [OPTION...]
#
# BASE is a commit; options are those of `mb gate`, such as --markdown FILE. Cases are the lines of
# scripts/ci/cases.txt. Launches are kept in gate/. Exits as `mb gate` does: 2 for a wrong BASE.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
base=$(git rev-parse --verify --quiet "${1:-}^{commit}") || {
  echo "gate.sh: \"${1:-}\": no commit here; usage: scripts/ci/gate.sh BASE [OPTION...]" >&2
  exit 2
}
shift
. scripts/setup.sh
tree=build/base
git worktree prune
[ -e "$tree/.git" ] || git worktree add --detach --force "$tree" "$base" >&2
git -C "$tree" checkout --quiet --detach "$base"
(cd "$tree" && build cpu --target meshbench) >&2
build cpu --target meshbench >&2
mapfile -t cases < <(grep -v '^ *\(#\|$\)' scripts/ci/cases.txt)
exec .venv/bin/mb gate --builds "$tree/build/cpu/bench/meshbench" build/cpu/bench/meshbench "${cases[@]}" "$@"
