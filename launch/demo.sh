#!/usr/bin/env bash
# Builds Ferry if need be and lets the checkpoint in launch/demo/ answer a question, describe a picture and continue a sentence,
# with a coordinator and two expert workers on this machine. Speed and balance are printed by `ferry generate` itself.
set -euo pipefail
case "${1:-}" in
  -h | --help)
    sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0"
    exit 0
    ;;
esac
cd "$(dirname "$0")/.."

ferry=build/release/launch/ferry

# build_ferry [CMAKE OPTION...]: the program alone. A build folder that has tests keeps them.
tests=OFF
if grep -qs '^FERRY_BUILD_TESTS:BOOL=ON' build/release/CMakeCache.txt; then tests=ON; fi
build_ferry() {
  cmake --preset release -DFERRY_BUILD_TESTS="$tests" "$@" >/dev/null
  cmake --build --preset release -j 2 --target ferry
}

# The answers need neither structured output nor the Vulkan backend. Where their compilers are not there yet, those come afterwards.
later=()
launch/setup.sh --check --for program || later=(-DFERRY_GRAMMAR=off -DFERRY_VULKAN=off)

launch/setup.sh --no-build --for answers
echo "demo: building ferry in build/release"
build_ferry "${later[@]}"

echo
echo "== What does river mean?"
launch/mpirun.sh -np 3 "$ferry" generate --model demo --chat "What does river mean?"
echo
echo "== launch/demo/pictures/shapes0.png: Describe the picture."
launch/mpirun.sh -np 3 "$ferry" generate --model demo --chat "Describe the picture." --image launch/demo/pictures/shapes0.png
echo
echo "== The PostgreSQL server …"
launch/mpirun.sh -np 3 "$ferry" generate --model demo --prompt "The PostgreSQL server" --max-tokens 24

if [ ${#later[@]} -gt 0 ]; then
  echo
  echo "demo: adding structured output and the Vulkan backend to $ferry; it can be used meanwhile"
  launch/setup.sh --no-build --for program
  build_ferry
  if launch/setup.sh --check --for program; then
    echo "demo: $ferry is complete"
  else
    echo "demo: $ferry lacks what could not be fetched; run this again with access to PyPI" >&2
  fi
fi
