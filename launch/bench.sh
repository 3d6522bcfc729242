#!/usr/bin/env bash
# Ferry's speed on this machine, as the README's table says it: prefill and decode of a checkpoint with the layer shapes of
# Qwen3.5-35B-A3B (4 layers, random weights) in bf16, W8A8 and W4A8, alone and with 2 expert workers on the same cores.
#
#   launch/bench.sh [DIR]      DIR: where results go, default build/bench
#
# Writes DIR/*.json, DIR/table.md and DIR/roofline.svg. Needs 9 GB of disk for the checkpoint (made once, in build/slice), 12 GB of
# memory and about 20 minutes.
set -euo pipefail
case "${1:-}" in
  -h | --help)
    sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0"
    exit 0
    ;;
esac
cd "$(dirname "$0")/.."

results="${1:-build/bench}"
slice=build/slice
launch/setup.sh --no-build
cmake --preset release >/dev/null
cmake --build --preset release -j 2 --target ferry ferry_slice
if [ ! -f "$slice/config.json" ]; then
  echo "bench: making $slice"
  build/release/tests/bench/ferry_slice --out "$slice"
fi

mkdir -p "$results"
sizes=(-p 512,2048 -n 32 -b 1,4,16,64 -r 5 --json)
for weights in none w8a8 w4a8; do
  echo "bench: weights $weights, one process"
  build/release/launch/ferry bench --model "$slice" --quantize "$weights" "${sizes[@]}" >"$results/$weights.json"
  echo "bench: weights $weights, 2 workers"
  launch/mpirun.sh -np 3 build/release/launch/ferry bench --model "$slice" --quantize "$weights" "${sizes[@]}" \
    >"$results/$weights-2workers.json"
done
python3 launch/roofline.py "$results"
cat "$results/table.md"
