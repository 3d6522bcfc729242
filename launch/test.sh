#!/usr/bin/env bash
# The whole check, the same here and in CI: the sources' form, then release, asan and tsan, built and tested, then the fuzz targets.
#   format   clang-format on every C++ file
#   release  everything but attacks on servers, which the next part has
#   asan     everything but Vulkan and whole jobs that only compare answers, with AddressSanitizer and UndefinedBehaviorSanitizer
#   tsan     what has threads: base, moe, comm, the coordinator; not gRPC, whose library is not instrumented
#   lint     clang-tidy, with the checks that .clang-tidy names, on what ranks exchange and share: the rest would take minutes
#   fuzz     every fuzz target for 4 s (launch/fuzz.sh)
# Both sanitized builds are by clang, which takes half the time of g++ for them.
# Ends with where the time went and one line per part; the exit code is non-zero if a build or a test failed.
set -uo pipefail
case "${1:-}" in
  -h | --help)
    sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0"
    exit 0
    ;;
esac
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

# one_preset NAME TARGET [CTEST OPTION...]: builds and tests a preset.
one_preset() {
  local preset="$1" target="$2" start=$SECONDS built status=0 result skipped
  shift 2
  if ! { cmake --preset "$preset" && cmake --build --preset "$preset" -j 2 --target "$target"; } >"$logs/$preset-build.log" 2>&1; then
    tail -n 60 "$logs/$preset-build.log"
    summary+=("$preset: BUILD FAILED, see $logs/$preset-build.log")
    failed=1
    return
  fi
  built=$SECONDS
  ctest --preset "$preset" "$@" 2>&1 | tee "$logs/$preset-ctest.log" || status=$?
  [ "$status" = 0 ] || failed=1
  result="$(grep -E 'tests passed|No tests were found' "$logs/$preset-ctest.log" | tail -n 1)"
  summary+=("$preset: ${result:-ctest gave no summary, exit code $status} (build $((built - start)) s, tests $((SECONDS - built)) s)"
    "  in programs of gtest: $(cases "$preset")")
  skipped="$(sed -n '/The following tests did not run/,/^$/p' "$logs/$preset-ctest.log" | grep -c Skipped || true)"
  [ "$skipped" = 0 ] || summary+=("  $skipped tests skipped")
  slowest "$preset"
}

every_file_is_formatted() {
  git ls-files -co --exclude-standard '*.h' '*.cpp' | xargs -P 2 -n 40 clang-format --dry-run --Werror
}

part format every_file_is_formatted
one_preset release all -LE attack
one_preset asan all
one_preset tsan thread_tests
part lint tests/tidy/lint.py build/release /moe/ /comm/ /runtime/base/ /runtime/schedule/
part fuzz launch/fuzz.sh 4

echo
echo "== Where the time went"
printf '%s\n' "${times[@]}"
echo
echo "== Summary ($((SECONDS / 60)) min $((SECONDS % 60)) s)"
printf '%s\n' "${summary[@]}"
exit "$failed"
