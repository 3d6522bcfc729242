#!/usr/bin/env bash
# The whole check, the same here and in CI: builds release, asan and tsan and runs their tests.
#   release  everything
#   asan     everything, with AddressSanitizer and UndefinedBehaviorSanitizer
#   tsan     what has threads and no foreign runtime: base, moe, schedule, comm
# Ends with one line per preset; the exit code is non-zero if a build or a test failed.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

launch/setup.sh --no-build || exit 1
logs=build/test-logs
mkdir -p "$logs"
summary=()
failed=0

for preset in release asan tsan; do
  start=$SECONDS
  target=all
  [ "$preset" != tsan ] || target=thread_tests
  if ! { cmake --preset "$preset" && cmake --build --preset "$preset" -j 2 --target "$target"; } >"$logs/$preset-build.log" 2>&1; then
    tail -n 60 "$logs/$preset-build.log"
    summary+=("$preset: BUILD FAILED, see $logs/$preset-build.log")
    failed=1
    continue
  fi
  built=$SECONDS
  status=0
  ctest --preset "$preset" 2>&1 | tee "$logs/$preset-ctest.log" || status=$?
  [ "$status" = 0 ] || failed=1
  result="$(grep -E 'tests passed|No tests were found' "$logs/$preset-ctest.log" | tail -n 1)"
  summary+=("$preset: ${result:-ctest gave no summary, exit code $status} (build $((built - start)) s, tests $((SECONDS - built)) s)")
  skipped="$(sed -n '/The following tests did not run/,/^$/p' "$logs/$preset-ctest.log" | grep -c Skipped || true)"
  [ "$skipped" = 0 ] || summary+=("  $skipped skipped")
done

echo
echo "== Summary"
printf '%s\n' "${summary[@]}"
exit "$failed"
