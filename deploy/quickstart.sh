#!/usr/bin/env bash
# From a bare Debian 12 to streamed text: installs what is missing, builds Release, starts the three processes, waits
# until health says SERVING, sends a prompt, streams the answer and ends with one line of figures.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  cat <<'TEXT'
usage: deploy/quickstart.sh [options]
  --prompt TEXT     what to send (default: the beginning of a Python function)
  --model DIR       target checkpoint, Hugging Face layout (default: deploy/models/arborist-tiny/target)
  --drafter DIR     DFlash drafter checkpoint (default: the one beside the shipped target; with another --model: n-gram)
  --device cuda     compute on a GPU (default: cpu)
  --keep            leave the processes running; print addresses and a sample call
  --stop            stop the processes that --keep left running
  --port N          TCP port of the coordinator on 127.0.0.1 (default 50050)
TEXT
}

prompt=$'import argparse\nimport os\n\n\ndef count_lines(path):\n    """Return the number of lines in a file."""\n'
model=deploy/models/arborist-tiny/target
drafter=
keep=false
stop=false
port=50050
device=cpu
while [ $# -gt 0 ]; do
  case "$1" in
    --prompt) prompt=${2:?--prompt needs a text}; shift 2 ;;
    --model) model=${2:?--model needs a directory}; shift 2 ;;
    --drafter) drafter=${2:?--drafter needs a directory}; shift 2 ;;
    --port) port=${2:?--port needs a number}; shift 2 ;;
    --device) device=${2:?--device needs cpu or cuda}; shift 2 ;;
    --keep) keep=true; shift ;;
    --stop) stop=true; shift ;;
    -h | --help) usage; exit 0 ;;
    *) echo "unknown option $1" >&2; usage >&2; exit 2 ;;
  esac
done

run_dir=${ARBORIST_RUN_DIR:-${XDG_RUNTIME_DIR:-/tmp}/arborist-$(id -u)}
bin=build/release/bin

stop_all() {
  local name pid
  for name in coordinator drafter verifier; do
    [ -f "$run_dir/$name.pid" ] || continue
    pid=$(cat "$run_dir/$name.pid")
    # The pid file may be stale: only a process that is ours is told to end.
    if grep -qs "arborist-$name" "/proc/$pid/cmdline"; then
      kill "$pid" 2>/dev/null || true
      for _ in $(seq 100); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
      kill -9 "$pid" 2>/dev/null || true
    fi
    rm -f "$run_dir/$name.pid"
  done
}

if $stop; then
  stop_all
  echo "stopped"
  exit 0
fi

[ -f "$model/config.json" ] || { echo "--model=$model, expected a directory with config.json" >&2; exit 1; }
if [ -z "$drafter" ] && [ "$model" = deploy/models/arborist-tiny/target ]; then
  drafter=deploy/models/arborist-tiny/drafter
fi
[ -z "$drafter" ] || [ -f "$drafter/config.json" ] || { echo "--drafter=$drafter, expected a directory with config.json" >&2; exit 1; }

deploy/install_packages.sh --build-only
mkdir -p build
echo "building (log: build/quickstart.log) ..."
if ! { cmake --preset release && cmake --build --preset release -j "$(nproc)" \
         --target arborist arborist-coordinator arborist-drafter arborist-verifier; } >build/quickstart.log 2>&1; then
  tail -n 40 build/quickstart.log >&2
  exit 1
fi

mkdir -p "$run_dir"
stop_all
$keep || trap stop_all EXIT

start() {  # name, then flags
  local name=$1
  shift
  "$bin/arborist-$name" --config "deploy/config/$name.textproto" "$@" >"$run_dir/$name.log" 2>&1 </dev/null &
  echo $! >"$run_dir/$name.pid"
}
verifier_address=unix:$run_dir/verifier.sock
drafter_address=unix:$run_dir/drafter.sock
start verifier --listen "$verifier_address" --device "$device" --model "$model" ${drafter:+--drafter "$drafter"}
if [ -n "$drafter" ]; then
  start drafter --listen "$drafter_address" --verifier "$verifier_address" --target "$model" --model "$drafter" --device "$device"
else
  start drafter --listen "$drafter_address" --verifier "$verifier_address" --proposer ngram --tokenizer "$model"
fi
start coordinator --listen "unix:$run_dir/coordinator.sock" --listen "127.0.0.1:$port" \
  --verifier "$verifier_address" --drafter "$drafter_address" --tokenizer "$model"

for service in verifier drafter coordinator; do
  pid=$(cat "$run_dir/$service.pid")
  if ! kill -0 "$pid" 2>/dev/null || ! "$bin/arborist" health --address "unix:$run_dir/$service.sock" --service "arborist.v1.${service^}Service" --wait 120s; then
    echo "$service did not become SERVING; its log:" >&2
    tail -n 20 "$run_dir/$service.log" >&2
    exit 1
  fi
done

# The coordinator asks its peers four times a second and decodes plainly until it knows the drafter.
for _ in $(seq 50); do
  "$bin/arborist" model --address "127.0.0.1:$port" --timeout 5s 2>/dev/null | grep -q '"drafter": "ready"' && break
  sleep 0.1
done

# A little temperature keeps so small a model from repeating itself; the seed makes every newcomer see the same text.
echo
printf '%s' "$prompt"
"$bin/arborist" generate --address "127.0.0.1:$port" --prompt "$prompt" --max-tokens 256 \
  --temperature 0.4 --seed 7 --speculation tree --tree-nodes 16

if $keep; then
  cat <<TEXT

running: coordinator 127.0.0.1:$port, logs in $run_dir
try:     $bin/arborist generate --address 127.0.0.1:$port --prompt 'import os' --max-tokens 100 --json
stop:    deploy/quickstart.sh --stop
TEXT
fi
