#!/usr/bin/env bash
# Asks a running vLLM one question and says whether Pointsman could use it:
#
#   deploy/vllm/check.sh BASE_URL MODEL FOLDER
#   deploy/vllm/check.sh http://127.0.0.1:8000/v1 Qwen/Qwen3-8B /dev/shm/pointsman
#
# Needs curl. It checks that the connector is on, that its file comes into FOLDER, and
# when; then it removes the file. A key is taken from VLLM_API_KEY. `pointsman check`
# finds more (shapes, values, permissions), and needs a configuration.
set -euo pipefail

fail() { echo "FAILING  $*" >&2; exit 1; }
[ $# -eq 3 ] || { echo "usage: check.sh BASE_URL MODEL FOLDER" >&2; exit 64; }
url=${1%/} model=$2 folder=${3%/}
[ -d "$folder" ] || fail "$folder is no folder here: vLLM and Pointsman must share it"

# The key goes by standard input, so that it is not in the process list.
answer=$(
  {
    [ -z "${VLLM_API_KEY:-}" ] || printf 'header = "Authorization: Bearer %s"\n' "$VLLM_API_KEY"
  } | curl --silent --show-error --max-time 60 --config - --write-out '\n%{http_code}' \
    --header 'Content-Type: application/json' \
    --data "{\"model\":\"$model\",\"messages\":[{\"role\":\"user\",\"content\":\"Which of these two railway lines leads to the harbour?\"}],\"max_tokens\":1,\"temperature\":0}" \
    "$url/chat/completions"
) || fail "no answer from $url"
status=${answer##*$'\n'} body=${answer%$'\n'*}
[ "$status" = 200 ] || fail "status $status (404: is $model the served name? 401: is VLLM_API_KEY right?)"
path=$(grep -oE '"hidden_states_path" *: *"[^"]+"' <<<"$body" | head -n 1 | sed -E 's/.*: *"([^"]+)"$/\1/' || true)
[ -n "$path" ] || fail "the answer names no file: the connector is not on; see launch.sh"
name=${path##*/}
echo "answered; vLLM says the file is $path"
[ "$path" = "$folder/$name" ] || echo "note     vLLM sees the folder as ${path%/*}: say so with reported_dir"

file=$folder/$name
# A released lock, and a file as long as its header says.
whole() {
  [ -f "$file" ] || return 1
  if [ -f "$file.lock" ] && command -v flock >/dev/null; then
    flock --shared --nonblock "$file.lock" true || return 1
  fi
  local header end size
  header=$(od -An -tu8 -N8 "$file" | tr -d ' ')
  [ -n "$header" ] && [ "$header" -lt 1048576 ] || return 1
  end=$(tail -c +9 "$file" | head -c "$header" | tr -d '\0' | grep -oE '"data_offsets" *: *\[[0-9]+ *, *[0-9]+' | grep -oE '[0-9]+$' | sort -n | tail -n 1) || return 1
  size=$(wc -c <"$file")
  [ "$size" -eq $((8 + header + end)) ]
}
for ((i = 0; i < 100; i++)); do
  if whole; then
    lock="no lock file"
    [ -f "$file.lock" ] && lock="with a lock file"
    echo "whole after about $((i * 100)) ms, $(wc -c <"$file") bytes, $lock"
    rm -f "$file" "$file.lock" || fail "it cannot be removed: Pointsman must be able to write to $folder"
    echo "good"
    exit 0
  fi
  sleep 0.1
done
[ -f "$file" ] || fail "no such file here after 10 s: do both see the same folder?"
fail "the file is not whole after 10 s: look into vLLM's log for a failed write"
