#!/usr/bin/env bash
# Starts a Ferry job: rank 0 is the coordinator, the others are expert workers.
#
#   launch/mpirun.sh -np 3 [--host LIST | --hostfile FILE | --map-by X | --bind-to X | -x VAR | --mca KEY VALUE]... COMMAND [ARGUMENTS]
#
# It adds to a plain mpirun:
#   - the flags that Ferry needs: a dead worker must not take the job with it (--enable-recovery), ranks may share cores;
#   - TERM, INT and HUP go to the coordinator alone, which drains and then ends its workers; a second signal ends everything;
#   - the exit code is the coordinator's (mpirun itself reports 0 under --enable-recovery);
#   - ranks that outlive the coordinator by 10 seconds are ended.
set -euo pipefail

# Runs as a rank: rank 0 leaves its process id and its exit code behind, the others just run.
if [ "${1:-}" = --as-rank ]; then
  state="$2"
  shift 2
  if [ "${OMPI_COMM_WORLD_RANK:-0}" != 0 ] || [ ! -d "$state" ]; then exec "$@"; fi
  "$@" <&0 &
  coordinator=$!
  trap : TERM # mpirun signals the whole process group; stay for the exit code
  echo "$coordinator" >"$state/pid.new" && mv "$state/pid.new" "$state/pid"
  status=0
  wait "$coordinator" || status=$?
  while kill -0 "$coordinator" 2>/dev/null; do
    status=0
    wait "$coordinator" || status=$?
  done
  echo "$status" >"$state/status.new" && mv "$state/status.new" "$state/status"
  exit "$status"
fi

options=()
binding=(--bind-to none)
while [ $# -gt 0 ]; do
  case "$1" in
    -np | -n | --np | --host | -host | --hostfile | -hostfile | --map-by | -map-by | -x)
      [ $# -ge 2 ] || break
      options+=("$1" "$2")
      shift 2
      ;;
    --bind-to | -bind-to)
      [ $# -ge 2 ] || break
      binding=("$1" "$2")
      shift 2
      ;;
    --mca | -mca)
      [ $# -ge 3 ] || break
      options+=("$1" "$2" "$3")
      shift 3
      ;;
    -h | --help | -*)
      sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" >&2
      exit 2
      ;;
    *) break ;;
  esac
done
if [ $# -eq 0 ]; then
  echo "launch/mpirun.sh: no command given; try --help" >&2
  exit 2
fi

if [ "$(id -u)" = 0 ]; then export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; fi
self="$(cd "$(dirname "$0")" && pwd)/$(basename "$0")"
state="$(mktemp -d "${TMPDIR:-/tmp}/ferry-job.XXXXXX")"
mpirun_pid=""
trap 'rm -rf "$state"' EXIT

signals=0
on_signal() {
  signals=$((signals + 1))
  if [ "$signals" = 1 ] && [ -f "$state/pid" ]; then
    kill -TERM "$(cat "$state/pid")" 2>/dev/null || true
  elif [ -n "$mpirun_pid" ]; then
    kill -TERM "$mpirun_pid" 2>/dev/null || true
  fi
}
trap on_signal TERM INT HUP

# Open MPI 4.1's PMIx tells of its own slip whenever a rank ends with an error; the rank has said what matters.
without_pmix_noise() {
  trap '' TERM INT HUP # it has to outlive the ranks, whose messages it carries
  exec sed -u '/PMIX ERROR: BAD-PARAM in file .*pmix_event_notification/d'
}

# A session of its own: Ctrl-C must reach this script only.
setsid mpirun --enable-recovery "${binding[@]}" --oversubscribe --mca mpi_yield_when_idle 1 "${options[@]}" \
  "$self" --as-rank "$state" "$@" <&0 2> >(without_pmix_noise >&2) &
mpirun_pid=$!

ticks_left=100 # of 0.1 s, from the coordinator's end
while kill -0 "$mpirun_pid" 2>/dev/null; do
  sleep 0.1 &
  wait $! || true
  if [ -f "$state/status" ]; then
    ticks_left=$((ticks_left - 1))
    if [ "$ticks_left" = 0 ]; then
      echo "launch/mpirun.sh: ranks outlive the coordinator, ending them" >&2
      kill -TERM "$mpirun_pid" 2>/dev/null || true
    elif [ "$ticks_left" = -50 ]; then
      kill -KILL -- "-$mpirun_pid" 2>/dev/null || true
    fi
  fi
done
status=0
wait "$mpirun_pid" || status=$?
if [ -f "$state/status" ]; then status="$(cat "$state/status")"; fi
exit "$status"
