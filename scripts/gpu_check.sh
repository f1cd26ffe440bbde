#!/usr/bin/env bash
# Proves on a GPU what tests can only prove on a double of it.
# Usage: scripts/gpu_check.sh [--no-build] [--out DIR] [--limit SECONDS] [--tiny]
#
# Builds the cuda preset and runs what scripts/gpu_check.py lists: within 8 minutes it writes
# gpu_check.json and the table gpu_check.txt to DIR (build/gpu_check). Needs no network and no Python
# packages. A part that fails says so and leaves the others alone; what does not fit into the time is
# cut, the least worth first. Exits with 0 if all parts are ok and no goal is missed, 1 if not, and 2
# for a wrong command.
set -euo pipefail
exec python3 "$(dirname "${BASH_SOURCE[0]}")/gpu_check.py" "$@"
