#!/usr/bin/env bash
# Runs a command beside a Slurm of one node that nobody else sees: in a copy of this system (an overlay in memory) with its own
# processes and host name, all of which is gone afterwards. It sees this tree, and writes to it.
#
#   tests/e2e/private_slurm.sh COMMAND [ARGUMENTS]
#
# Needs root and overlayfs, and Debian's slurmctld, slurmd, slurm-client and munge: with FERRY_SLURM=1 in the environment they are
# installed in the copy if they are missing. Where it is impossible it says why and ends with 77.
set -euo pipefail
self="$(cd "$(dirname "$0")" && pwd)/$(basename "$0")"
tree="$(cd "$(dirname "$0")/../.." && pwd)"
state=/var/lib/private-slurm # in the copy

skip() {
  echo "skipped: $*"
  exit 77
}

has_slurm() {
  local program
  for program in slurmctld slurmd sbatch srun munged mungekey; do command -v "$program" >/dev/null || return 1; done
}

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

# In namespaces of its own: makes the copy, with /mnt as the place to do so, and goes on inside.
make_copy() {
  echo localhost >/proc/sys/kernel/hostname
  mount -t tmpfs tmpfs /mnt 2>/dev/null || skip "nothing can be mounted"
  mkdir /mnt/upper /mnt/work /mnt/root
  mount -t overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work overlay /mnt/root 2>/dev/null || skip "no overlay of / can be mounted"
  mount --rbind /dev /mnt/root/dev
  mount --rbind /sys /mnt/root/sys
  mount -t proc proc /mnt/root/proc
  mkdir -p "/mnt/root$tree"
  mount --bind "$tree" "/mnt/root$tree"
  exec chroot /mnt/root "$self" --in-copy "$@"
}

install_slurm() {
  printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d # packages start no daemons
  chmod +x /usr/sbin/policy-rc.d
  export DEBIAN_FRONTEND=noninteractive
  { apt-get -qq update && apt-get -qq install -y --no-install-recommends slurmctld slurmd slurm-client munge; } >/tmp/apt.log 2>&1 ||
    skip "Slurm cannot be installed: $(tail -n 1 /tmp/apt.log)"
}

start_slurm() {
  mkdir -p "$state/controller" "$state/node"
  mungekey --create --keyfile "$state/munge.key"
  munged --force --key-file "$state/munge.key" --socket "$state/munge.socket" --pid-file "$state/munge.pid" \
    --seed-file "$state/munge.seed" --log-file "$state/munge.log"
  export SLURM_CONF="$state/slurm.conf"
  cat >"$SLURM_CONF" <<END
ClusterName=private
SlurmctldHost=localhost
SlurmctldPort=$(free_port)
SlurmdPort=$(free_port)
SlurmUser=root
AuthInfo=socket=$state/munge.socket
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
StateSaveLocation=$state/controller
SlurmdSpoolDir=$state/node
SlurmctldPidFile=$state/controller.pid
SlurmdPidFile=$state/node.pid
SlurmctldLogFile=$state/controller.log
SlurmdLogFile=$state/node.log
NodeName=localhost CPUs=4 State=UNKNOWN
PartitionName=main Nodes=localhost Default=YES State=UP
END
  slurmctld
  slurmd -N localhost
  local tries
  for ((tries = 0; tries < 300; ++tries)); do
    if [ "$(sinfo --noheader --format=%t 2>/dev/null)" = idle ]; then return; fi
    sleep 0.1
  done
  cat "$state"/*.log >&2
  echo "private_slurm.sh: no node was ready after 30 seconds" >&2
  exit 1
}

case "${1:-}" in
  --in-namespaces)
    shift
    make_copy "$@"
    ;;
  --in-copy)
    shift
    has_slurm || install_slurm
    start_slurm
    cd "$tree"
    status=0
    "$@" || status=$?
    exit "$status"
    ;;
  "")
    sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" >&2
    exit 2
    ;;
esac
[ "$(id -u)" = 0 ] || skip "only root can mount an overlay"
if ! has_slurm && [ "${FERRY_SLURM:-}" != 1 ]; then
  skip "Slurm is not installed; with FERRY_SLURM=1 the test installs Debian's, in a copy of this system"
fi
unshare --mount --uts --pid --fork true 2>/dev/null || skip "no namespaces here"
exec unshare --mount --uts --pid --fork --kill-child "$self" --in-namespaces "$@"
