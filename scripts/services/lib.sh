# Shared helpers of the service scripts in this folder. Sourced, not run.
#
# Every service lives in one folder, $SERVICES_DIR/<service>, with its data,
# its log and its pid file. A server is only ever ended through that pid file,
# which also records the process's start time, so that a recycled pid is never
# signalled.
set -euo pipefail
umask 022
PATH=$PATH:/usr/sbin:/sbin

say() { printf '%s\n' "$*" >&2; }
die() { say "$SERVICE: $*"; exit 1; }
is_root() { [ "$(id -u)" = 0 ]; }

# can_enter USER DIR: may USER reach DIR, or the nearest of its parents that exists?
can_enter() {
  local d=$2
  while [ ! -d "$d" ]; do d=$(dirname "$d"); done
  setpriv --reuid="$1" --regid="$(id -g "$1")" --clear-groups test -x "$d"
}

# init SERVICE [USER]: fixes DIR, LOG, PIDFILE and RUN (the prefix that drops
# root to USER; empty for an ordinary user). Call it after the packages are
# there, since they create USER.
init() {
  SERVICE=$1
  local user=${2:-} base
  base=${SERVICES_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/oncemore-services}
  # root's home is often closed to other users: its services then live elsewhere.
  if is_root && [ -z "${SERVICES_DIR:-}" ] && ! can_enter nobody "$base"; then
    base=/var/cache/oncemore-services
  fi
  mkdir -p "$base/$SERVICE"
  DIR=$(cd "$base/$SERVICE" && pwd)
  LOG=$DIR/log PIDFILE=$DIR/pid RUN=() RUN_USER=
  if is_root && [ -n "$user" ] && id "$user" >/dev/null 2>&1; then
    can_enter "$user" "$DIR" ||
      die "user $user cannot enter $DIR: set SERVICES_DIR to a folder that it can"
    RUN_USER=$user
    RUN=(setpriv "--reuid=$user" "--regid=$(id -g "$user")" --init-groups)
  fi
}

# own PATH...: hands folders over to the unprivileged user (a no-op otherwise).
own() { if [ -n "$RUN_USER" ]; then chown -R "$RUN_USER:" "$@"; fi; }

# lock: one up/down at a time for each service.
lock() { exec 9>"$DIR/lock"; flock -w 300 9 || die "another up or down is still running"; }

# start_time PID: when PID started, in ticks; nothing when it is gone, or dead and
# not yet collected by its parent.
start_time() {
  local f
  read -r f 2>/dev/null <"/proc/$1/stat" || return 0
  # shellcheck disable=SC2086
  set -- ${f##*) }
  case $1 in Z | X) ;; *) echo "${20}" ;; esac
}

# alive [PIDFILE]: prints the pid when the recorded process still runs.
alive() {
  local f=${1:-$PIDFILE} pid t
  [ -r "$f" ] || return 1
  read -r pid t <"$f" || return 1
  [ -n "$pid" ] && [ -n "$t" ] && [ "$(start_time "$pid")" = "$t" ] || return 1
  echo "$pid"
}

# start PIDFILE LOG COMMAND...: runs COMMAND in the background, off the
# terminal, as RUN_USER, and records it.
start() {
  local pidfile=$1 log=$2 pid t i; shift 2
  # After a crash, PostgreSQL takes a dead process that its parent has not yet
  # collected for a live one: give that some time.
  if [ -r "$pidfile" ] && read -r pid t <"$pidfile"; then
    for ((i = 0; i < 300; i++)); do
      grep -qs '^State:[[:space:]]*Z' "/proc/$pid/status" || break
      sleep 0.1
    done
  fi
  : >"$log"
  (cd "$DIR" && exec setsid "${RUN[@]}" "$@" </dev/null >>"$log" 2>&1 9>&-) &
  pid=$!
  t=$(start_time "$pid") || true
  [ -n "$t" ] || die "did not start, see $log"
  echo "$pid $t" >"$pidfile"
}

# stop SIGNAL [SECONDS] [PIDFILE]: asks the recorded process to end, and kills
# it when it has not after SECONDS.
stop() {
  local sig=$1 secs=${2:-60} f=${3:-$PIDFILE} pid i
  if pid=$(alive "$f"); then
    kill "-$sig" "$pid"
    for ((i = 0; i < secs * 10; i++)); do alive "$f" >/dev/null || break; sleep 0.1; done
    if alive "$f" >/dev/null; then
      say "$SERVICE: no end after ${secs}s, killing $pid"
      kill -KILL "$pid"
      for ((i = 0; i < 50; i++)); do alive "$f" >/dev/null || break; sleep 0.1; done
    fi
  fi
  rm -f "$f"
}

# wait_for SECONDS COMMAND...: until COMMAND succeeds, while the server lives.
wait_for() {
  local secs=$1 i; shift
  for ((i = 0; i < secs * 10; i++)); do
    if "$@" >/dev/null 2>&1; then return 0; fi
    alive >/dev/null || { tail -n 20 "$LOG" >&2; die "ended while starting, see $LOG"; }
    sleep 0.1
  done
  tail -n 20 "$LOG" >&2
  stop TERM 20
  die "not ready after ${secs}s, see $LOG"
}

port_open() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
port_free() { if port_open "$1"; then die "port $1 is taken by another process"; fi; }

# need COMMAND PACKAGE...: installs Debian packages when COMMAND is missing.
need() {
  local cmd=$1; shift
  command -v "$cmd" >/dev/null 2>&1 && return 0
  install_packages "$@"
  command -v "$cmd" >/dev/null 2>&1 || die "$cmd is still missing after installing $*"
}

# install_packages PACKAGE...: their own services are not started by that.
install_packages() {
  AS=()
  if ! is_root; then
    sudo -n true 2>/dev/null || die "missing; as root: apt-get install $*"
    AS=(sudo -n)
  fi
  say "$SERVICE: installing $*"
  (
    exec >&2 9>&-
    flock -w 600 8
    unstarted
    apt_get update -qq
    apt_get install -y -qq --no-install-recommends "$@"
  ) 8>"${TMPDIR:-/tmp}/oncemore-services-apt.$(id -u).lock"
}

# unstarted: until this subshell ends, packages do not start their services.
unstarted() {
  local policy=/usr/sbin/policy-rc.d
  if [ -e $policy ]; then return; fi
  trap '"${AS[@]}" rm -f /usr/sbin/policy-rc.d' EXIT
  printf '#!/bin/sh\nexit 101\n' | "${AS[@]}" tee $policy >/dev/null
  "${AS[@]}" chmod 755 $policy
}

# apt_get ARGUMENT...: waits while somebody else holds one of apt's locks; apt
# itself waits for only one of them.
apt_get() {
  local out i
  for ((i = 0; i < 120; i++)); do
    if out=$("${AS[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 "$@" </dev/null 2>&1); then return; fi
    grep -qiE 'could not get lock|unable to lock|unable to acquire' <<<"$out" || break
    sleep 5
  done
  printf '%s\n' "$out" | tail -n 20
  return 1
}

# main up|down|status|wipe: the scripts define up, down, url and, before
# calling main, SERVICE.
main() {
  case ${1:-} in
    up) up; url ;;
    down) down ;;
    wipe) down; rm -rf "${DIR:?}" ;;
    status)
      local pid
      if pid=$(alive); then
        say "$SERVICE: running, pid $pid, $(awk '/VmRSS/ {printf "%d MiB resident", $2/1024}' "/proc/$pid/status"), in $DIR"
        url
      else
        say "$SERVICE: stopped, in $DIR"
        exit 3
      fi ;;
    *) say "usage: $0 up|down|status|wipe   (wipe: down, and delete the data)"; exit 2 ;;
  esac
}
