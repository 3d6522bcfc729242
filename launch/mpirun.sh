#!/usr/bin/env bash
# Starts a Ferry job: rank 0 is the coordinator, the others are expert workers.
#
#   launch/mpirun.sh -np 3 [--host LIST | --hostfile FILE | --map-by X | --bind-to X | -x VAR | --mca KEY VALUE]... COMMAND [ARGUMENTS]
#
# It adds to a plain mpirun:
#   - the flags that Ferry needs: a dead worker must not take the job with it (--enable-recovery), ranks may share cores;
#   - no port but those that Ferry serves on can be reached: on one host MPI goes through shared memory alone, on several hosts mpirun,
#     its daemons and MPI listen on the interface that COMMAND's --net-interface names (on all of them if it names none);
#   - TERM, INT and HUP go to the coordinator alone, which drains and then ends its workers; a second signal ends everything,
#     a third one at once;
#   - the exit code is the coordinator's (mpirun itself reports 0 under --enable-recovery);
#   - ranks that outlive the coordinator by 5 seconds (times FERRY_TIMEOUT_FACTOR) are ended, also stopped ones, and the job ends if this script is killed;
#     what killed jobs left in shared memory and in temporary folders is removed.
set -euo pipefail

self="$(cd "$(dirname "$0")" && pwd)/$(basename "$0")"
listen_on=libferry_listen_on.so # beside COMMAND: makes Open MPI listen where FERRY_LISTEN_ON says

# What a rank tells this script is in the names of empty files: they can be made on a full disk, too.
note() { : >"$1/$2"; }
noted() { # FOLDER KIND: puts the value that was noted, or nothing, into $noted (no subshell: bash 5.2 breaks when a trap interrupts one)
  local file
  noted=""
  for file in "$1/$2".*; do
    if [ -e "$file" ]; then noted="${file##*.}"; fi
  done
}

case "${1:-}" in
  --as-rank) # Runs as a rank: rank 0 leaves its process id and its exit code behind, the others just run.
    state="$2"
    shift 2
    [ "${FERRY_LISTEN_ON:-none}" != none ] || unset LD_PRELOAD
    if [ "${OMPI_COMM_WORLD_RANK:-0}" != 0 ] || [ ! -d "$state" ]; then exec "$@"; fi
    note "$state" "job.${OMPI_MCA_ess_base_jobid:-${PMIX_NAMESPACE:-0}}" || true
    "$@" <&0 &
    coordinator=$!
    trap : TERM # mpirun signals the whole process group; stay for the exit code
    note "$state" "pid.$coordinator" || true
    status=0
    wait "$coordinator" || status=$?
    while kill -0 "$coordinator" 2>/dev/null; do
      status=0
      wait "$coordinator" || status=$?
    done
    note "$state" "status.$status" || true
    exit "$status"
    ;;
  --as-daemon) # Runs mpirun's daemon on another host.
    interface="$2" library="$3"
    shift 3
    if [ -r "$library" ]; then export FERRY_LISTEN_ON="$interface" LD_PRELOAD="$library"; fi
    exec orted "$@"
    ;;
esac

options=()
binding=(--bind-to none)
one_host=yes
if [ -n "${SLURM_JOB_ID:-}${PBS_NODEFILE:-}${LSB_HOSTS:-}${PE_HOSTFILE:-}" ]; then one_host=no; fi
while [ $# -gt 0 ]; do
  case "$1" in
    --host | -host | --hostfile | -hostfile)
      [ $# -ge 2 ] || break
      one_host=no
      options+=("$1" "$2")
      shift 2
      ;;
    -np | -n | --np | --map-by | -map-by | -x)
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
    -h | --help)
      sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" >&2
      exit 2
      ;;
    *) break ;;
  esac
done
case "${1:-}" in
  -np | -n | --np | --map-by | -map-by | -x | --bind-to | -bind-to | --mca | -mca | --host | -host | --hostfile | -hostfile)
    echo "launch/mpirun.sh: $1: a value is missing; try --help" >&2
    exit 2
    ;;
  -*)
    echo "launch/mpirun.sh: $1 is not known here; try --help" >&2
    exit 2
    ;;
esac
if [ $# -eq 0 ]; then
  echo "launch/mpirun.sh: no command given; try --help" >&2
  exit 2
fi

if ! command -v -- "$1" >/dev/null; then
  echo "launch/mpirun.sh: no program '$1' here; launch/demo.sh builds build/release/launch/ferry" >&2
  exit 127
fi

# The interface that COMMAND's --net-interface names.
net_interface() {
  local before=""
  for word in "$@"; do
    if [ "$before" = --net-interface ]; then echo "$word"; fi
    case "$word" in --net-interface=*) echo "${word#*=}" ;; esac
    before="$word"
  done
}

# Open MPI hangs where it cannot open a file.
descriptors=128
ulimit -Sn "$(ulimit -Hn)" 2>/dev/null || true
if [ "$(ulimit -Sn)" != unlimited ] && [ "$(ulimit -Sn)" -lt "$descriptors" ]; then
  echo "launch/mpirun.sh: ulimit -n is $(ulimit -Sn) open files; allowed: $descriptors or more" >&2
  exit 1
fi

# mca KEY VALUE: sets one of Open MPI's parameters, unless the user did: it refuses one that is given twice.
transport=()
mca() {
  case " ${options[*]-} " in *"mca $1 "*) ;; *) transport+=(--mca "$1" "$2") ;; esac
}

# Where mpirun, its daemons and MPI listen.
preload=()
mca mpi_yield_when_idle 1
library="$(cd "$(dirname "$(command -v "$1" || echo "$1")")" 2>/dev/null && pwd)/$listen_on"
if [ "$one_host" = yes ]; then
  mca pml ob1
  mca btl self,vader
  mca oob_tcp_if_include lo
  if [ -r "$library" ]; then preload=(env FERRY_LISTEN_ON=none LD_PRELOAD="$library"); fi
else
  interface="$(net_interface "$@" | tail -1)"
  if [ -n "$interface" ]; then
    mca pml ob1
    mca btl self,vader,tcp
    case "$interface" in # Open MPI takes names and networks; ranks get by LD_PRELOAD what it does not offer
      *[.:]*) ;;
      *)
        mca oob_tcp_if_include "$interface"
        mca btl_tcp_if_include "$interface"
        ;;
    esac
    if [ -r "$library" ]; then
      mca orte_launch_agent "$self --as-daemon $interface $library"
      transport+=(-x LD_PRELOAD -x FERRY_LISTEN_ON)
      preload=(env FERRY_LISTEN_ON="$interface" LD_PRELOAD="$library")
    fi
  fi
fi

# A folder for the notes, wherever one can be made.
state=""
for folder in "${TMPDIR:-/tmp}" /dev/shm /run; do
  state="$(mktemp -d "$folder/ferry-job.XXXXXX" 2>/dev/null)" && note "$state" "script.$$" 2>/dev/null && break
  state=""
done
if [ -z "$state" ]; then
  echo "launch/mpirun.sh: cannot make a folder in ${TMPDIR:-/tmp}, /dev/shm or /run; set TMPDIR to one with room" >&2
  exit 1
fi

# How many ranks the command asks for. Without a number mpirun starts one for each core.
num_ranks() {
  local before=""
  for word in "${options[@]-}"; do
    case "$before" in -np | -n | --np) case "$word" in "" | *[!0-9]*) ;; *) echo "$word" && return ;; esac ;; esac
    before="$word"
  done
  nproc
}
# Open MPI ends a job whose segments find no room. They are files in /dev/shm, or in the folder for the notes.
if [ "$one_host" = yes ]; then
  needed=$((8 * 10#$(num_ranks))) # MiB: a rank's segment takes 4, and what else is there needs room, too
  room=0
  if [ -w /dev/shm ] && free="$(stat -f -c '%a*%S' /dev/shm 2>/dev/null)"; then room=$((free / 1048576)); fi
  if [ "$room" -lt "$needed" ]; then
    echo "launch/mpirun.sh: /dev/shm has $room MiB free, $needed are needed; MPI puts its shared memory in ${state%/*}" >&2
    mca btl_vader_backing_directory "$state"
  fi
fi

# Open MPI leaves its segments behind when its processes are killed: those of this job, and old ones that nobody has mapped.
segments="/dev/shm/vader_segment.$(uname -n | cut -d. -f1).$(id -u)"
remove_segments() {
  noted "$state" job
  case "$noted" in "" | *[!0-9]*) return 0 ;; esac
  rm -f -- "$segments.$(printf %x "$noted")".*
}
remove_old_segments() {
  local segment
  [ -d /dev/shm ] || return 0
  find /dev/shm -maxdepth 1 -user "$(id -u)" -name "${segments##*/}.*" -mmin +2 2>/dev/null | while read -r segment; do
    grep -qsF -- "$segment" /proc/[0-9]*/maps || rm -f -- "$segment"
  done
}
remove_old_notes() { # of scripts that were killed
  local folder
  for folder in "${state%.*}".*; do
    noted "$folder" script
    case "$noted" in "" | *[!0-9]*) continue ;; esac
    if [ -O "$folder" ] && ! kill -0 "$noted" 2>/dev/null; then rm -rf -- "$folder"; fi
  done
}
mpirun_pid=""
trap 'remove_segments; rm -rf "$state"' EXIT
remove_old_segments
remove_old_notes

# Ends this host's part of the job but for process $1: mpirun has a session of its own.
kill_session() {
  local stat pid fields session
  for stat in /proc/[0-9]*/stat; do
    { read -r pid fields <"$stat"; } 2>/dev/null || continue
    fields="${fields##*) }" # state, parent, group, session, …
    read -r _ _ _ session _ <<<"$fields"
    if [ "$session" = "$mpirun_pid" ] && [ "$pid" != "$1" ]; then kill -KILL "$pid" 2>/dev/null || true; fi
  done
}

signals=0
on_signal() {
  local noted
  signals=$((signals + 1))
  noted "$state" pid
  if [ "$signals" = 1 ] && [ -n "$noted" ]; then
    kill -TERM "$noted" 2>/dev/null || true
  elif [ -n "$mpirun_pid" ] && [ "$signals" -le 2 ]; then
    kill -TERM "$mpirun_pid" 2>/dev/null || true
  elif [ -n "$mpirun_pid" ]; then
    kill_session none
  fi
}
trap on_signal TERM INT HUP

# Open MPI 4.1's PMIx tells of its own slip whenever a rank ends with an error; the rank has said what matters.
without_pmix_noise() {
  trap '' TERM INT HUP # it has to outlive the ranks, whose messages it carries
  exec sed -u '/PMIX ERROR: BAD-PARAM in file .*pmix_event_notification/d'
}

if [ "$(id -u)" = 0 ]; then export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; fi
# A session of its own: Ctrl-C must reach this script only. TERM for mpirun, which ends the job, if this script is killed.
"${preload[@]}" setsid setpriv --pdeathsig TERM mpirun --enable-recovery "${binding[@]}" --oversubscribe "${transport[@]}" \
  "${options[@]}" "$self" --as-rank "$state" "$@" <&0 2> >(without_pmix_noise >&2) &
mpirun_pid=$!

factor="${FERRY_TIMEOUT_FACTOR:-1}"
[[ "$factor" =~ ^[1-9][0-9]{0,2}$ ]] || factor=1 # the ranks complain
limit=$((50 * factor))
ticks=0 # of 0.1 s, since the coordinator's end
while kill -0 "$mpirun_pid" 2>/dev/null; do
  sleep 0.1 &
  wait $! || true
  noted "$state" status
  [ -n "$noted" ] || continue
  ticks=$((ticks + 1))
  case "$ticks" in
    "$limit")
      echo "launch/mpirun.sh: ranks outlive the coordinator, ending them" >&2
      kill_session "$mpirun_pid"
      kill -TERM "$mpirun_pid" 2>/dev/null || true
      ;;
    "$((limit + 20))") kill_session none ;;
  esac
done
status=0
wait "$mpirun_pid" 2>/dev/null || status=$?
noted "$state" status
if [ -n "$noted" ]; then exit "$noted"; fi
noted "$state" pid
if [ "$status" = 0 ] && { [ "$one_host" = yes ] || [ -n "$noted" ]; }; then
  echo "launch/mpirun.sh: the coordinator ended without telling its exit code" >&2
  status=1
fi
exit "$status"
