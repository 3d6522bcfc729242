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

launch/setup.sh --no-build
echo "demo: building ferry in build/release"
cmake --preset release >/dev/null
cmake --build --preset release -j 2 --target ferry
ferry=build/release/launch/ferry

echo
echo "== What does river mean?"
launch/mpirun.sh -np 3 "$ferry" generate --model demo --chat "What does river mean?"
echo
echo "== launch/demo/pictures/shapes0.png: Describe the picture."
launch/mpirun.sh -np 3 "$ferry" generate --model demo --chat "Describe the picture." --image launch/demo/pictures/shapes0.png
echo
echo "== The PostgreSQL server …"
launch/mpirun.sh -np 3 "$ferry" generate --model demo --prompt "The PostgreSQL server" --max-tokens 24
