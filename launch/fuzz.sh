#!/usr/bin/env bash
# Feeds every reader of foreign bytes with made-up ones (libFuzzer, AddressSanitizer, UndefinedBehaviorSanitizer).
#
#   launch/fuzz.sh SECONDS [TARGET...]       each target for so long, from tests/fuzz/corpus
#   launch/fuzz.sh runs=NUMBER [TARGET...]   each target with so many inputs, for hours if need be
#
# As many targets at a time as there are cores (JOBS=N for another number). New inputs are kept in build/fuzz/found/TARGET, what a
# finding came from in build/fuzz/findings/. Ends with a line per target: inputs tried, findings; the exit code is non-zero if
# there is one. FERRY_FUZZ_PROGRAM names a program built elsewhere; without it the preset `fuzz` is built.
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

one_target() {
  local target="$1"
  mkdir -p "$out/found/$target"
  "$program" --target="$target" "$limit" -timeout=10 -rss_limit_mb=2048 -max_len=8192 -print_final_stats=1 -verbosity=0 \
    -artifact_prefix="$out/findings/$target-" "$out/found/$target" "tests/fuzz/corpus/$target" >"$out/logs/$target.log" 2>&1
}
export -f one_target
export program limit out

printf '%s\n' "${targets[@]}" | xargs -P "${JOBS:-$(nproc)}" -I{} bash -c 'one_target {} || true'

failed=0
for target in "${targets[@]}"; do
  log="$out/logs/$target.log"
  tried="$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")"
  findings="$(find "$out/findings" -name "$target-*" -newer "$program" | wc -l)"
  [ -n "$tried" ] && [ "$findings" = 0 ] || failed=1
  printf '%-20s %12s inputs  %s findings%s\n' "$target" "${tried:-?}" "$findings" "$([ -n "$tried" ] && [ "$findings" = 0 ] || echo ", see $log")"
done
exit "$failed"
