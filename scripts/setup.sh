#!/usr/bin/env bash
# Installs what is missing, makes .venv, builds build/cpu. Usage: scripts/setup.sh
#
# Does nothing twice, and asks no question. The other scripts source it, and build what they need.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export DEBIAN_FRONTEND=noninteractive

say() { echo "setup: $*" >&2; }
have() { command -v "$1" >/dev/null; }
# at_least 3.25 3.22.1: is the second version no older than the first?
at_least() { [ "$(printf '%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]; }

missing_packages() {
  have git || echo git
  have cmake || echo cmake
  have ninja || echo ninja-build
  if ! have g++; then
    echo g++
  elif ! at_least 12 "$(g++ -dumpversion)" && ! have g++-12; then
    echo g++-12
  fi
  python3 -c 'import ensurepip, venv' 2>/dev/null || echo python3-venv
  # Tests click through the report in a browser; elsewhere than on Debian, apt has none that it could install.
  if [ "${browser:-no}" = yes ] && grep -qs '^ID=debian' /etc/os-release; then
    have chromium || echo chromium
    have chromedriver || echo chromium-driver
  fi
  have dpkg-query || return 0
  local library
  for library in libbenchmark-dev libcli11-dev libdnnl-dev libfmt-dev libgtest-dev \
    libmpich-dev libopenmpi-dev mpich nlohmann-json3-dev openmpi-bin; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' $library 2>/dev/null)" = installed ] ||
      echo $library
  done
}

install_packages() {
  local -a packages=() as_root=()
  mapfile -t packages < <(missing_packages)
  [ ${#packages[@]} -gt 0 ] || return 0
  if [ "$(id -u)" -ne 0 ]; then
    have sudo && sudo -n true 2>/dev/null && as_root=(sudo -n --preserve-env=DEBIAN_FRONTEND)
  fi
  if ! have apt-get || { [ "$(id -u)" -ne 0 ] && [ ${#as_root[@]} -eq 0 ]; }; then
    say "missing: ${packages[*]}; install with: sudo apt-get install -y ${packages[*]}"
    exit 1
  fi
  say "installing ${packages[*]}"
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null
}

make_venv() {
  local stamp=.venv/requirements.stamp wanted
  wanted=$(cat requirements.txt scripts/pyproject.toml <(python3 --version) <(pwd) | sha256sum)
  if [ "$(cat $stamp 2>/dev/null)" != "$wanted" ]; then
    say "installing requirements.txt into .venv"
    python3 -m venv --clear .venv
    .venv/bin/python -m pip install -q --disable-pip-version-check -r requirements.txt
    .venv/bin/python -m pip install -q --disable-pip-version-check --no-build-isolation --no-deps -e scripts
    echo "$wanted" >$stamp
  fi
  export PATH="$PWD/.venv/bin:$PATH"
}

# The presets want CMake 3.25.
newer_cmake() {
  at_least 3.25 "$(cmake --version | awk 'NR == 1 {print $3}')" ||
    .venv/bin/python -m pip install -q --disable-pip-version-check cmake==3.31.6
  hash -r
}

# build PRESET [OPTION...]: configures and builds a preset of CMakePresets.json.
build() {
  say "building build/$1"
  cmake --preset "$1" --log-level=WARNING >/dev/null && cmake --build --preset "$@"
}

install_packages
install_packages # an old g++ shows only once it is there
make_venv
newer_cmake
if [ -z "${CXX:-}" ] && ! at_least 12 "$(g++ -dumpversion)"; then export CXX=g++-12; fi
if have ccache; then export CMAKE_CXX_COMPILER_LAUNCHER=ccache; fi
if [ "${BASH_SOURCE[0]}" = "$0" ]; then build cpu; fi
