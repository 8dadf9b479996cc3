#!/usr/bin/env bash
# Starts the vLLM that Pointsman reads hidden states from, with the flags that the
# installed release wants:
#
#   deploy/vllm/launch.sh MODEL LAYERS FOLDER [further vLLM arguments]
#   deploy/vllm/launch.sh Qwen/Qwen3-8B 9,18,27,36 /dev/shm/pointsman --port 8000
#
# LAYERS are those that the checkpoint was trained on, ascending, each once:
# `pointsman check` prints them if the checkpoint says so. Layer 0 is the embedding,
# k the output of block k. With PRINT=1 the command is printed and not run, one
# argument a line, as a container's args want it; VLLM_VERSION says for which release.
set -euo pipefail

die() { echo "launch.sh: $*" >&2; exit 64; }
[ $# -ge 3 ] || die "usage: launch.sh MODEL LAYERS FOLDER [vLLM arguments]"
model=$1 layers=$2 folder=$3
shift 3
[[ $layers =~ ^[0-9]+(,[0-9]+)*$ ]] || die "LAYERS must be numbers with commas, such as 9,18,27,36"
[ "$(tr , '\n' <<<"$layers" | sort -n -u | paste -sd, -)" = "$layers" ] ||
  die "LAYERS must ascend, each once: vLLM writes them in that order whatever is said here"
[[ $folder = /* ]] || die "FOLDER must be an absolute path: vLLM reports it, and Pointsman looks there"
[[ $folder != *[\"\\]* ]] || die "FOLDER must have no quotes and backslashes"

version=${VLLM_VERSION:-$(vllm --version 2>/dev/null | grep -oE '[0-9]+\.[0-9]+(\.[0-9]+)?' | tail -n 1 || true)}
[ -n "$version" ] || die "vllm is not in PATH; VLLM_VERSION says which release it will be"
[[ $version =~ ^v?([0-9]+)\.([0-9]+) ]] || die "no version: $version"
major=${BASH_REMATCH[1]} minor=${BASH_REMATCH[2]}

args=(
  "$model"
  # One slot a request that Pointsman sends at once (max_in_flight), or fewer: the rest would wait in vLLM.
  --max-num-seqs 32
  --speculative-config "{\"method\":\"extract_hidden_states\",\"num_speculative_tokens\":1,\"draft_model_config\":{\"hf_config\":{\"eagle_aux_hidden_state_layer_ids\":[$layers]}}}"
  --kv-transfer-config "{\"kv_connector\":\"ExampleHiddenStatesConnector\",\"kv_role\":\"kv_producer\",\"kv_connector_extra_config\":{\"shared_storage_path\":\"$folder\"}}"
)
if [ "$major" -gt 0 ] || [ "$minor" -ge 24 ]; then
  : # Written when the request ends, from all of its blocks: chunked prefill and prefix caching are fine.
elif [ "$minor" -ge 23 ]; then
  # The rework (vLLM #43805) came with 0.23 or 0.24. The flags are safe on both sides
  # of it for models that are not hybrids.
  args+=(--no-enable-chunked-prefill --no-enable-prefix-caching)
elif [ "$minor" -ge 17 ]; then
  # Only what a step computes is written: a chunked or cached prompt comes out short.
  args+=(--no-enable-chunked-prefill --no-enable-prefix-caching)
else
  die "vLLM $version has no hidden-states connector; 0.17 is the first"
fi
if [ "$major" -eq 0 ] && [ "$minor" -lt 31 ]; then
  echo "launch.sh: in vLLM before #56841 (0.30 or 0.31) an aborted queued request ends the engine: send it nothing but Pointsman's requests" >&2
fi
args+=("$@")

if [ "${PRINT:-}" = 1 ]; then
  printf '%s\n' "${args[@]}"
  exit 0
fi
# For this user alone, unless it is there already: the files hold the prompts.
[ -d "$folder" ] || install -d -m 0700 "$folder"
exec vllm serve "${args[@]}"
