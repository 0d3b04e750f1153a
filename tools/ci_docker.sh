#!/usr/bin/env bash
# A Docker engine for continuous integration: tools/ci_docker.sh start|env|stop|run COMMAND...
#
# Where an engine runs already (GitHub's runners, a developer's machine) it is used as it is, with
# the public images, and `stop` leaves it alone. Where none does, this starts one of its own, as
# root on Debian, with everything below one folder. No registry need be reachable for that: the
# images python:3.11-slim-bookworm, redis:7 and postgres:16 are then STAND-INS of the same names,
# made from Debian's packages (tools/ci_docker/). Users get the public images; they never get these.
#
# `stop` ends what was started, by its pid, and puts back iptables, ip_forward and the network
# interfaces as they were; it fails, and says what differs, if they are not. Debian packages that
# `start` has installed stay installed.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(dirname "$HERE")
# Short and absolute: a socket's path must fit into 107 bytes.
STATE=${FENCEPOST_CI_DOCKER:-/var/tmp/fencepost-ci-docker}
CACHE=$ROOT/build/ci-docker
SOCKET=$STATE/docker.sock
PYTHON_IMAGE=python:3.11-slim-bookworm
FORWARD=/proc/sys/net/ipv4/ip_forward
export DEBIAN_FRONTEND=noninteractive

say() { printf 'ci_docker: %s\n' "$*" >&2; }
die() {
  say "$*"
  exit 1
}

# The engine that is there already is the one that a plain `docker` talks to.
foreign_engine() { [ ! -e "$STATE/pid" ] && docker info >/dev/null 2>&1; }
ours() { docker --host "unix://$SOCKET" "$@"; }
running() { [ -s "$STATE/pid" ] && kill -0 "$(cat "$STATE/pid")" 2>/dev/null; }

# Rules without their counters, and without tables that hold none: those come with the first look.
rules() {
  "$1-save" 2>/dev/null | sed -e '/^#/d' -e 's/\[[0-9]*:[0-9]*\]//' | awk '
    /^\*/ { table = $0; kept = ""; next }
    /^COMMIT/ { if (kept != "") printf "%s\n%sCOMMIT\n", table, kept; next }
    /^:[^ ]+ ACCEPT/ { next }
    { kept = kept $0 "\n" }'
}
interfaces() { find /sys/class/net -mindepth 1 -maxdepth 1 -printf '%f\n' | sort; }
as_found() {
  printf 'ip_forward %s\n' "$(cat "$FORWARD")"
  interfaces
  rules iptables
  rules ip6tables
}

install_packages() {
  local wanted=()
  command -v dockerd >/dev/null || wanted+=(docker.io)
  command -v iptables >/dev/null || wanted+=(iptables)
  command -v debootstrap >/dev/null || wanted+=(debootstrap)
  [ ${#wanted[@]} -gt 0 ] || return 0
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null ||
    die "no Docker engine answers, and starting one takes root on Debian: start yours first"
  say "installing ${wanted[*]}"
  apt-get update -qq
  # docker.io would start its own daemon on a machine with an init system.
  RUNLEVEL=1 apt-get install -y -qq --no-install-recommends "${wanted[@]}" >/dev/null
}

remember() {
  mkdir -m 700 -p "$STATE/found"
  cat "$FORWARD" >"$STATE/found/ip_forward"
  local tool
  for tool in iptables ip6tables; do
    "$tool-save" >"$STATE/found/$tool" 2>/dev/null || true
  done
  interfaces >"$STATE/found/interfaces"
  as_found >"$STATE/found/all"
}

start_daemon() {
  dockerd --host "unix://$SOCKET" --data-root "$STATE/data" --exec-root "$STATE/exec" \
    --pidfile "$STATE/dockerd.pid" --group root >"$STATE/log" 2>&1 </dev/null &
  echo $! >"$STATE/pid"
  for _ in $(seq 100); do
    ours info >/dev/null 2>&1 && return 0
    running || break
    sleep 0.2
  done
  tail -n 20 "$STATE/log" >&2
  die "dockerd did not start; its log's end is above"
}

# Debian with its Python 3.11: close enough to the official image for a Dockerfile that uses pip.
make_rootfs() {
  local rootfs=$STATE/rootfs
  say "making the stand-in for $PYTHON_IMAGE (debootstrap)"
  debootstrap --variant=minbase \
    --include=ca-certificates,netbase,tzdata,python3,python3-pip,python-is-python3 \
    bookworm "$rootfs" >"$STATE/debootstrap.log" 2>&1 || {
    tail -n 20 "$STATE/debootstrap.log" >&2
    die "debootstrap failed"
  }
  # In the official image, pip may install into the image's own Python.
  rm -f "$rootfs"/usr/lib/python3*/EXTERNALLY-MANAGED
  rm -rf "$rootfs"/var/cache/apt/archives/*.deb "$rootfs"/var/lib/apt/lists/*
  mkdir -p "$CACHE"
  tar -C "$rootfs" -c . >"$CACHE/rootfs.partial"
  mv "$CACHE/rootfs.partial" "$CACHE/rootfs.tar"
  rm -rf "$rootfs"
}

# What this machine needs to reach package indexes, a container of the same machine needs as well.
make_images() {
  [ -s "$CACHE/rootfs.tar" ] || make_rootfs
  local context=$STATE/python name changes=()
  mkdir -p "$context"
  ours import "$CACHE/rootfs.tar" fencepost-rootfs >/dev/null
  cp "${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}" "$context/ca-certificates.crt"
  cat >"$context/Dockerfile" <<-DOCKERFILE
	FROM fencepost-rootfs
	COPY ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
	ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt
	CMD ["python3"]
	DOCKERFILE
  for name in PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_TRUSTED_HOST PIP_DEFAULT_TIMEOUT \
    HTTP_PROXY HTTPS_PROXY NO_PROXY http_proxy https_proxy no_proxy; do
    [ -z "${!name:-}" ] || changes+=("ENV $name=${!name}")
  done
  [ ${#changes[@]} -eq 0 ] || printf '%s\n' "${changes[@]}" >>"$context/Dockerfile"
  build "$PYTHON_IMAGE" "$context/Dockerfile" "$context"
  build redis:7 "$HERE/ci_docker/redis.Dockerfile" "$HERE/ci_docker"
  build postgres:16 "$HERE/ci_docker/postgres.Dockerfile" "$HERE/ci_docker"
}

build() {
  local log=$STATE/build.log
  say "building $1 from $(basename "$2")"
  # The classic builder: Debian's engine comes without BuildKit's client.
  DOCKER_BUILDKIT=0 ours build --tag "$1" --file "$2" "$3" >"$log" 2>&1 || {
    tail -n 40 "$log" >&2
    die "$1 could not be built; the log's end is above"
  }
}

# Docker Compose comes with the dev requirements where Docker doesn't bring it.
config() {
  local plugin=$ROOT/.venv/bin/docker-compose
  [ -x "$plugin" ] || die "$plugin is missing: make the environment first (make compose-test does)"
  mkdir -p "$STATE/config/cli-plugins"
  ln -sf "$plugin" "$STATE/config/cli-plugins/docker-compose"
}

start() {
  if foreign_engine; then
    say "an engine runs already; using it and the public images"
    docker compose version >/dev/null || die "it lacks \`docker compose\`"
    docker build --quiet --tag fencepost-factory "$ROOT" >/dev/null
    return 0
  fi
  running && die "already started (pid $(cat "$STATE/pid")): $0 stop"
  install_packages
  [ "$(id -u)" = 0 ] || die "no Docker engine answers, and starting one takes root: start yours first"
  rm -rf "$STATE"
  remember
  trap 'say "giving up"; stop' EXIT
  say "starting an engine of its own below $STATE"
  config
  start_daemon
  make_images
  build fencepost-factory "$ROOT/Dockerfile" "$ROOT"
  trap - EXIT
  say "ready; base images are stand-ins made from Debian's packages"
}

# To be evaluated by the shell that uses the engine; empty where a plain `docker` reaches it.
environment() {
  if [ -s "$STATE/pid" ]; then
    printf 'export DOCKER_HOST=%q DOCKER_CONFIG=%q\n' "unix://$SOCKET" "$STATE/config"
  fi
}

restore_rules() {
  local tool=$1
  "$tool-save" >"$STATE/now" 2>/dev/null || return 0
  {
    # A table that was not there before: flushed, its own chains removed, policies as at boot.
    awk -v found="$STATE/found/$tool" '
      BEGIN { while ((getline line < found) > 0) if (line ~ /^\*/) known[line] = 1 }
      /^\*/ { skip = ($0 in known); if (!skip) print; next }
      skip { next }
      /^:/ { if ($2 != "-") print $1, "ACCEPT [0:0]"; next }
      /^COMMIT/ { print }' "$STATE/now"
    cat "$STATE/found/$tool"
  } | "$tool-restore"
}

end_daemon() {
  local pid
  pid=$(cat "$STATE/pid")
  if running; then
    ours ps --all --quiet | xargs --no-run-if-empty docker --host "unix://$SOCKET" rm --force \
      --volumes >/dev/null 2>&1 || true
    ours network prune --force >/dev/null 2>&1 || true
    kill -TERM "$pid"
    for _ in $(seq 150); do
      kill -0 "$pid" 2>/dev/null || break
      sleep 0.2
    done
    ! kill -0 "$pid" 2>/dev/null || kill -KILL "$pid"
  fi
}

stop() {
  trap - EXIT
  [ -d "$STATE/found" ] || {
    say "nothing of its own to stop"
    return 0
  }
  [ ! -s "$STATE/pid" ] || end_daemon
  local name
  for name in $(interfaces); do
    grep -qxF "$name" "$STATE/found/interfaces" || ip link delete "$name"
  done
  restore_rules iptables
  restore_rules ip6tables
  cat "$STATE/found/ip_forward" >"$FORWARD"
  as_found >"$STATE/now"
  local left
  left=$(diff "$STATE/found/all" "$STATE/now") || {
    printf '%s\n' "$left" >&2
    die "the machine is not as it was found (<: before, >: now); $STATE is kept"
  }
  left=$(grep -F "$STATE" /proc/mounts | cut -d' ' -f2) && die "still mounted: $left"
  rm -rf "$STATE"
  say "stopped; iptables, ip_forward and interfaces are as they were found, no dockerd is left"
}

run() {
  start
  trap stop EXIT
  eval "$(environment)"
  local code=0
  "$@" || code=$?
  stop
  return "$code"
}

case ${1:-} in
start | stop) "$1" ;;
env) environment ;;
run)
  shift
  run "$@"
  ;;
*) die "usage: $0 start | env | stop | run COMMAND..." ;;
esac
