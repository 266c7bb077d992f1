#!/usr/bin/env bash
# On a machine with an NVIDIA card that torch sees: makes a draft model for a target in five minutes, training on the
# card, and says what it is worth. llama.cpp is compiled for the processor, with which drafting is measured.
#
#   tests/device/forge.sh [TARGET.gguf]
#
# Without a file it takes the starter target, and where that cannot be fetched a random-weight model. It needs python3
# (3.11 or newer, with pip) and a C++ compiler; a torch that is installed is used as it is.
# Environment, each with its default:
#   OUT=./device-results            the results' folder: forge.txt, forge.json and a log of each step
#   DRAFTLIGHT_FORGE_MINUTES=5      how long the run may take, its preparations apart
#   DRAFTLIGHT_DEVICE_WORK          what can be used again: packages, downloads; in the cache folder
#   DRAFTLIGHT_WHEELS               a folder of packages, where no package index is to be reached
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
out=${OUT:-device-results}
work=${DRAFTLIGHT_DEVICE_WORK:-${XDG_CACHE_HOME:-$HOME/.cache}/draftlight/device-cpu}
minutes=${DRAFTLIGHT_FORGE_MINUTES:-5}
mkdir -p "$out" "$work"
out=$(cd "$out" && pwd)
work=$(cd "$work" && pwd)
rm -f "$out"/forge.{txt,json,log} "$out/forge-draft.gguf"
if [ -n "${DRAFTLIGHT_WHEELS:-}" ]; then
    [ -d "$DRAFTLIGHT_WHEELS" ] || { echo "There is no folder $DRAFTLIGHT_WHEELS. Correct DRAFTLIGHT_WHEELS." >&2; exit 1; }
    PIP_FIND_LINKS=$(cd "$DRAFTLIGHT_WHEELS" && pwd)
    export PIP_NO_INDEX=1 PIP_FIND_LINKS
fi
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
export CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}
site=$work/site
export PYTHONPATH=$root/app:$root/tests:$site PYTHONDONTWRITEBYTECODE=1

provide=(python3 "$root/tests/device/provide.py" --work "$work" --site "$site")
"${provide[@]}" packages >"$out/packages.log" 2>&1
"${provide[@]}" forge >>"$out/packages.log" 2>&1
"${provide[@]}" llama --device cpu >"$out/build.log" 2>&1
"${provide[@]}" models "$@" >"$out/models.txt" 2>"$out/models.log"
target=$(head -n 1 "$out/models.txt")

scratch=$(mktemp -d "$work/forge.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
export DRAFTLIGHT_DATA_DIR=$scratch DRAFTLIGHT_CONFIG_DIR=$scratch DRAFTLIGHT_CACHE_DIR=$scratch DRAFTLIGHT_LOG_DIR=$scratch
cd "$root"
python3 -c 'import torch; print("torch", torch.__version__, "sees", torch.cuda.get_device_name() if torch.cuda.is_available() else "no card")' \
    | tee "$out/forge.txt"
started=$SECONDS status=0
python3 -P -m draftlight forge "$target" --anyway --json \
    --minutes "$minutes" --out "$out/forge-draft.gguf" >"$out/forge.json" 2>"$out/forge.log" || status=$?
{
    echo "status $status after $((SECONDS - started)) s"
    tail -n 1 "$out/forge.json"
    cat "$scratch"/forge/*/log.jsonl
} | tee -a "$out/forge.txt"
exit "$status"
