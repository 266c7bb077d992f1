#!/usr/bin/env bash
# On a machine with an NVIDIA card: builds llama.cpp for that card, then runs the identity test, the probe (which
# verify widths are exact, what each costs) and the benchmark there, all within eight minutes.
#
#   tests/device/run.sh [TARGET.gguf [DRAFT.gguf]]
#
# Without files it takes the starter pair, and where its target cannot be fetched a random-weight pair. A target alone
# drafts from the text itself. It needs python3 (3.11 or newer, with pip), a C++ compiler and, for the card, nvcc.
# Environment, each with its default:
#   OUT=./device-results            the results' folder: summary.txt, and a log or a JSON file of each step
#   DRAFTLIGHT_DEVICE=cuda          cpu runs the same steps without a card
#   DRAFTLIGHT_DEVICE_SECONDS=470   the time for everything
#   DRAFTLIGHT_DEVICE_WORK          what can be used again: packages, downloads; in the cache folder
#   DRAFTLIGHT_GPU_LAYERS=999       layers of both models on the card
#   DRAFTLIGHT_DEVICE_THREADS=0     threads; 0 is the program's own choice, 1 bears other busy programs best
#   DRAFTLIGHT_WHEELS               a folder of packages, where no package index is to be reached: wheels, and
#                                   llama-cpp-python's source archive
# It ends with 0 if every step did its work; a step that ran out of time counts as failed, what it found is kept.
set -uo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
device=${DRAFTLIGHT_DEVICE:-cuda}
out=${OUT:-device-results}
work=${DRAFTLIGHT_DEVICE_WORK:-${XDG_CACHE_HOME:-$HOME/.cache}/draftlight/device-$device}
total=${DRAFTLIGHT_DEVICE_SECONDS:-470}
ends=$((SECONDS + total))
layers=${DRAFTLIGHT_GPU_LAYERS:-999}

fail() { # SENTENCE REMEDY
    echo "$1 $2" >&2
    exit 1
}

mkdir -p "$out" "$work" || fail "The folders $out and $work cannot be made." "Name others with OUT and DRAFTLIGHT_DEVICE_WORK."
out=$(cd "$out" && pwd)
work=$(cd "$work" && pwd)
rm -f "$out"/{machine,steps,summary}.txt "$out"/{packages,build,models,identity,probe,bench}.{txt,json,log} # of a run before

# --- the machine -----------------------------------------------------------------------------------------------------
command -v python3 >/dev/null || fail "There is no python3." "Install Python 3.11 or newer."
python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || fail "$(python3 --version) is too old." "Put 3.11 or newer first on PATH."
python3 -m pip --version >/dev/null 2>&1 || fail "python3 has no pip." "Install it (Debian and Ubuntu: apt-get install python3-pip)."
command -v timeout >/dev/null || fail "There is no timeout command." "Install the coreutils."
threads=${DRAFTLIGHT_DEVICE_THREADS:-0}
case $device in
cuda)
    command -v nvidia-smi >/dev/null || fail "There is no nvidia-smi, so no NVIDIA card." "Run this where there is one, or set DRAFTLIGHT_DEVICE=cpu."
    card=$(nvidia-smi --query-gpu=name,compute_cap --format=csv,noheader | head -n 1)
    capability=${card##*, }
    [[ $capability =~ ^[0-9]+\.[0-9]+$ ]] || fail "nvidia-smi names no card's compute capability: $card" "See whether the driver works."
    nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null) || fail "There is no nvcc." "Install the CUDA toolkit, or put its bin folder on PATH."
    toolkit=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
    export CUDACXX=$nvcc LD_LIBRARY_PATH=$toolkit/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    # Machine code for this card alone, no code for others: a third of the compilation's time.
    export CMAKE_ARGS="${CMAKE_ARGS:-} -DGGML_CUDA=on -DGGML_CCACHE=OFF -DCMAKE_CUDA_ARCHITECTURES=${capability/./}-real"
    options=(--threads "$threads" --gpu-layers "$layers" --draft-gpu-layers "$layers")
    tests='starter or twins'
    size=(--limit 16 --max-tokens 64)
    ;;
cpu)
    layers=0
    options=(--threads "$threads")
    tests=near_tie # the others take minutes on a small processor
    size=(--limit 4 --max-tokens 24)
    ;;
*) fail "DRAFTLIGHT_DEVICE is $device." "Set it to cuda or cpu." ;;
esac
{
    uname -srm
    python3 --version
    echo "cores: $(nproc)"
    [ "$device" = cpu ] || { nvidia-smi -L; "$nvcc" --version | tail -n 2; }
} >"$out/machine.txt" 2>&1

if [ -n "${DRAFTLIGHT_WHEELS:-}" ]; then
    [ -d "$DRAFTLIGHT_WHEELS" ] || fail "There is no folder $DRAFTLIGHT_WHEELS." "Correct DRAFTLIGHT_WHEELS."
    PIP_FIND_LINKS=$(cd "$DRAFTLIGHT_WHEELS" && pwd)
    export PIP_NO_INDEX=1 PIP_FIND_LINKS
fi
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
export CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}
site=$work/site
export PYTHONPATH=$root/app:$root/tests:$site PYTHONDONTWRITEBYTECODE=1

# --- the steps -------------------------------------------------------------------------------------------------------
n_failed=0
step() { # NAME KEPT FILE COMMAND...: as long as it takes, but so that KEPT of 470 parts of the time are left afterwards
    # The command's standard output goes to FILE, the rest to NAME.log.
    local name=$1 seconds=$((ends - SECONDS - $2 * total / 470)) file=$3 started=$SECONDS status result
    shift 3
    if [ "$seconds" -lt 5 ]; then
        status=-1 result="not run: no time was left"
    else
        echo "== $name (at most $seconds s)"
        timeout --signal=INT --kill-after=15 "$seconds" "$@" >"$out/$file" 2>"$out/$name.log" </dev/null
        status=$?
        case $status in
        0) result='did its work' ;;
        124 | 137) result="ran out of its $seconds s" ;;
        *) result="failed with status $status" ;;
        esac
    fi
    result="$result after $((SECONDS - started)) s"
    printf '%s\t%s\n' "$name" "$result" >>"$out/steps.txt"
    echo "   $result"
    [ "$status" -eq 0 ] && return 0
    n_failed=$((n_failed + 1))
    [ "$status" -eq -1 ] || tail -n 6 "$out/$name.log"
    return 1
}

finish() {
    python3 "$root/tests/device/summary.py" "$out" | tee "$out/summary.txt"
    [ "$n_failed" -eq 0 ]
    exit
}

provide=(python3 "$root/tests/device/provide.py" --work "$work" --site "$site")
step packages 380 packages.txt "${provide[@]}" packages || finish
step build 130 build.txt "${provide[@]}" llama --device "$device" || finish
step models 120 models.txt "${provide[@]}" models "$@" || finish
mapfile -t models <"$out/models.txt"
pair=(--target "${models[0]}" --draft "${models[1]}")

# What is measured here is kept here, and nobody's own files are touched.
scratch=$(mktemp -d "$work/run.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
export DRAFTLIGHT_DATA_DIR=$scratch DRAFTLIGHT_CONFIG_DIR=$scratch DRAFTLIGHT_CACHE_DIR=$scratch DRAFTLIGHT_LOG_DIR=$scratch

cd "$root" || exit 1
# The project's own pytest settings ask for plugins that the window's tests need.
step identity 85 identity.txt env -u CI DRAFTLIGHT_TEST_GPU_LAYERS="$layers" DRAFTLIGHT_TEST_THREADS="$threads" \
    DRAFTLIGHT_STARTER_TARGET="${models[2]}" python3 -m pytest -c /dev/null --rootdir "$root" -o addopts= \
    --import-mode=importlib -p no:cacheprovider -q -W ignore::pytest.PytestUnknownMarkWarning \
    -k "$tests" tests/integration/test_lossless.py
step probe 50 probe.json python3 -P -m draftlight probe --json "${pair[@]}" "${options[@]}"
# It begins no prompt in its last minute; should that not do, the interrupt ends it, and what it has is written down too.
minutes=$(python3 -c "print(max(0.2, ($ends - $SECONDS - 60) / 60))")
step bench 0 bench.json python3 -P -m draftlight bench --json --report "$out/report" "${size[@]}" \
    --minutes "$minutes" --ctx 4096 --arms "${models[3]}" "${pair[@]}" "${options[@]}"
finish
