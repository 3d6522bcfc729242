#!/usr/bin/env bash
# Checks Ferry, the same here and in CI.
#
#   launch/test.sh          the gate: what must pass before a change lands. No test of it depends on how fast the machine is.
#   launch/test.sh --all    the gate, and then all other tests of the release build: real clients and viewers from PyPI, Slurm,
#                           benchmarks, unit tests that the gate runs with sanitizers only; fuzzing
#   launch/test.sh --host   only the tests that need real time or a quiet core; run it on a machine that does nothing else
#
# Parts of the gate:
#   format   clang-format on every C++ file
#   release  end-to-end tests, and the unit tests of inner loops and numbers
#   asan     unit tests and attacks on servers, with AddressSanitizer and UndefinedBehaviorSanitizer; no Vulkan
#   tsan     what has threads, with ThreadSanitizer; not gRPC, whose library is not instrumented
#   lint     clang-tidy, with the checks that .clang-tidy names, on what ranks exchange and share
# Clang builds both sanitized parts, in half the time of g++. A part is built while the tests of the part before it run, so the times
# of builds and tests overlap. tests/gate.cmake says which unit test runs in which part.
# Ends with where the time went and one line per part. The exit code is non-zero if a build or a test failed.
set -uo pipefail
mode=gate
case "${1:-}" in
  -h | --help)
    sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0"
    exit 0
    ;;
  --all) mode=all ;;
  --host) mode=host ;;
  "") ;;
  *)
    echo "test: '$1' is not an option; it may be --all or --host" >&2
    exit 2
    ;;
esac
if [ $# -gt 1 ]; then
  echo "test: $# options; allowed: one of --all and --host" >&2
  exit 2
fi
cd "$(dirname "$0")/.." || exit 1

launch/setup.sh --no-build || exit 1
logs=build/test-logs
mkdir -p "$logs"
summary=()
times=()
failed=0

# part NAME COMMAND...: one part that is no preset; its output is shown if it fails.
part() {
  local name="$1" start=$SECONDS verdict=passed
  shift
  if ! "$@" >"$logs/$name.log" 2>&1; then
    tail -n 200 "$logs/$name.log"
    echo "test: $name FAILED; the other parts go on" >&2
    verdict="FAILED, see $logs/$name.log"
    failed=1
  fi
  summary+=("$name: $verdict ($((SECONDS - start)) s)")
}

# What took longest in a preset: objects and links by ninja's log since the second in which the build began, tests by ctest's.
slowest() {
  local preset="$1"
  times+=("$preset, slowest to build (s):"
    "$(awk 'NR > 1 && !seen[$4]++ { printf "%8.1f %s\n", ($2 - $1) / 1000, $4 }' <(tac "build/$preset/.ninja_log") | sort -rn | head -n 8)"
    "$preset, slowest tests (s):"
    "$(sed -nE 's/^ *[0-9]+\/[0-9]+ Test +#[0-9]+: ([^ ]+) .* ([0-9.]+) sec.*/\2 \1/p' "$logs/$preset-ctest.log" \
      | sort -rn | head -n 8 | awk '{ printf "%8.1f %s\n", $1, $2 }')")
}

# cases NAME: how many cases the gtest programs of a preset's last run say that they passed, skipped and failed.
cases() {
  awk '/^\[  (PASSED|SKIPPED|FAILED) +\] [0-9]+ tests?/ { n[$2] += $4 }
    END { printf "%d cases passed, %d skipped, %d failed", n["PASSED"], n["SKIPPED"], n["FAILED"] }' "build/$1/Testing/Temporary/LastTest.log"
}

# start_build NAME TARGET: builds a preset in the background. It takes the time that tests leave, so tests may run beside it.
builder=
start_build() {
  local preset="$1" target="$2"
  set -m  # a process group of its own, which ends with this script
  {
    start=$SECONDS
    nice -n 19 cmake --preset "$preset" && nice -n 19 cmake --build --preset "$preset" -j 2 --target "$target" || exit 1
    echo "$((SECONDS - start))" >"$logs/$preset-build.seconds"
  } >"$logs/$preset-build.log" 2>&1 &
  builder=$!
  set +m
}
trap '[ -z "$builder" ] || kill -- -"$builder" 2>/dev/null' EXIT

# finish_build NAME: waits for the build that start_build began last.
finish_build() {
  local preset="$1"
  if ! wait "$builder"; then
    grep -A 20 -E '^FAILED|error:' "$logs/$preset-build.log" | head -n 60
    tail -n 20 "$logs/$preset-build.log"
    summary+=("$preset: BUILD FAILED, see $logs/$preset-build.log")
    failed=1
    builder=
    return 1
  fi
  builder=
  built="$(cat "$logs/$preset-build.seconds")"
}

build() {
  start_build "$@"
  finish_build "$1"
}

# run_tests NAME [CTEST OPTION...]: runs tests of a preset that is built.
run_tests() {
  local preset="$1" start=$SECONDS status=0 result skipped
  shift
  ctest --preset "$preset" "$@" 2>&1 | tee "$logs/$preset-ctest.log" || status=$?
  [ "$status" = 0 ] || failed=1
  result="$(grep -E 'tests passed|No tests were found' "$logs/$preset-ctest.log" | tail -n 1)"
  summary+=("$preset: ${result:-ctest gave no summary, exit code $status} (build $built s, tests $((SECONDS - start)) s)"
    "  in programs of gtest: $(cases "$preset")")
  skipped="$(sed -n '/The following tests did not run/,/^$/p' "$logs/$preset-ctest.log" | grep -c Skipped || true)"
  [ "$skipped" = 0 ] || summary+=("  $skipped tests skipped")
  slowest "$preset"
}

every_file_is_formatted() {
  git ls-files -co --exclude-standard '*.h' '*.cpp' | xargs -P 2 -n 40 clang-format --dry-run --Werror
}

# Builds a preset while the tests of the one before it run.
gate() {
  local presets=(release asan tsan) i preset
  part format every_file_is_formatted
  start_build "${presets[0]}" gate
  for i in "${!presets[@]}"; do
    preset="${presets[i]}"
    local is_built=1
    finish_build "$preset" || is_built=0
    [ $((i + 1)) = ${#presets[@]} ] || start_build "${presets[i + 1]}" gate
    [ $is_built = 0 ] || run_tests "$preset" -L '^gate$'
  done
  part lint tests/tidy/lint.py build/release /moe/ /comm/ /runtime/base/ /runtime/schedule/
}

case "$mode" in
  gate) gate ;;
  all)
    gate
    mv "$logs"/release-build.log "$logs"/gate-build.log
    mv "$logs"/release-ctest.log "$logs"/gate-ctest.log
    echo "test: the other tests of the release build; the gate's logs of release are $logs/gate-*.log"
    export FERRY_CLIENTS=all FERRY_SLURM=1  # also clients with large packages, and Slurm in a copy of this system
    build release all && run_tests release -LE '^(gate|host)$'
    part fuzz launch/fuzz.sh 4
    ;;
  host)
    echo "test: only the tests that need real time or a quiet core; a busy machine can fail them"
    build release all && run_tests release -L '^host$' -j 1
    ;;
esac

echo
echo "== Where the time went"
printf '%s\n' "${times[@]}"
echo
echo "== Summary ($((SECONDS / 60)) min $((SECONDS % 60)) s)"
printf '%s\n' "${summary[@]}"
exit "$failed"
