#!/usr/bin/env bash
# Feeds every reader of foreign bytes with made-up ones (libFuzzer, AddressSanitizer, UndefinedBehaviorSanitizer).
#
#   launch/fuzz.sh SECONDS [TARGET...]       each target for so long, from tests/fuzz/corpus
#   launch/fuzz.sh runs=NUMBER [TARGET...]   each target with so many inputs, for hours if need be
#
# As many targets at a time as there are cores (JOBS=N for another number). New inputs are kept in build/fuzz/found/TARGET, what a
# finding came from in build/fuzz/findings/. Ends with a line per target: inputs tried, findings; then, for each finding, what the
# sanitizer or the timeout's stack says and the input in base64; the exit code is non-zero if there is one. To see it again:
#   base64 -d <<<TEXT >input && build/fuzz/tests/fuzz/ferry_fuzz --target=TARGET input
# FERRY_FUZZ_PROGRAM names a program built elsewhere; without it the preset `fuzz` is built.
set -euo pipefail
cd "$(dirname "$0")/.."

case "${1:-}" in
  runs=[0-9]*) limit="-runs=${1#runs=}" ;;
  [0-9]*) limit="-max_total_time=$1" ;;
  *)
    sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" >&2
    exit 2
    ;;
esac
shift

program="${FERRY_FUZZ_PROGRAM:-}"
if [ -z "$program" ]; then
  cmake --preset fuzz >/dev/null
  cmake --build --preset fuzz -j "$(nproc)"
  program=build/fuzz/tests/fuzz/ferry_fuzz
fi
mapfile -t targets < <([ $# -gt 0 ] && printf '%s\n' "$@" || "$program" --list)
out=build/fuzz
mkdir -p "$out/findings" "$out/logs"

# Freed memory is kept apart for 16 MiB, some hundred inputs, before it is used again: with the usual 256 MiB every allocation
# misses the caches. A short stack of each allocation is kept for the report.
export ASAN_OPTIONS="quarantine_size_mb=16:malloc_context_size=4:${ASAN_OPTIONS:-}"

one_target() {
  local target="$1"
  mkdir -p "$out/found/$target"
  "$program" --target="$target" "$limit" -timeout=10 -rss_limit_mb=2048 -max_len=8192 -print_final_stats=1 -verbosity=0 \
    -artifact_prefix="$out/findings/$target-" "$out/found/$target" "tests/fuzz/corpus/$target" >"$out/logs/$target.log" 2>&1
}
export -f one_target
export program limit out

started="$out/started"
touch "$started"
printf '%s\n' "${targets[@]}" | xargs -P "${JOBS:-$(nproc)}" -I{} bash -c 'one_target {} || true'

# What is needed to see a finding again, from this output alone.
explain() {
  local target="$1" finding
  echo
  echo "== $target: the end of its log"
  tail -n 40 "$out/logs/$target.log" | cut -c1-400
  for finding in "${@:2}"; do
    echo "== $target: $(basename "$finding") in base64"
    base64 -w 0 "$finding"
    echo
  done
}

findings_of() {
  find "$out/findings" -name "$1-*" -newer "$started" | sort
}

failed=()
for target in "${targets[@]}"; do
  tried="$(sed -n 's/^stat::number_of_executed_units: *//p' "$out/logs/$target.log")"
  mapfile -t findings < <(findings_of "$target")
  verdict=""
  if [ -z "$tried" ] || [ ${#findings[@]} != 0 ]; then
    failed+=("$target")
    verdict=", see $out/logs/$target.log"
  fi
  printf '%-20s %12s inputs  %s findings%s\n' "$target" "${tried:-?}" "${#findings[@]}" "$verdict"
done
for target in "${failed[@]}"; do
  mapfile -t findings < <(findings_of "$target")
  explain "$target" "${findings[@]}"
done
[ ${#failed[@]} = 0 ]
