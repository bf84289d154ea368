#!/bin/bash
# Tests gpu-probe without a card: with no driver, and with the fake driver in test/,
# which answers some calls, lacks others, hangs, crashes and fails on demand.
set -euo pipefail
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
probe=$(./build.sh "$work/gpu-probe")
mkdir "$work/fake"
${CC:-gcc} -std=gnu11 -O2 -Wall -Wextra -Werror -shared -fPIC -fvisibility=hidden \
	-Wl,-soname,libcuda.so.1 -o "$work/fake/libcuda.so.1" test/fake_cuda.c -ldl

fail() { echo "FAILED: $*" >&2; exit 1; }
fake() { LD_LIBRARY_PATH="$work/fake" timeout 170 env "$@"; }

# expect_status WANTED COMMAND...: runs it with stdout to $work/out, stderr to $work/err.
expect_status() {
	local wanted=$1 got=0
	shift
	"$@" >"$work/out" 2>"$work/err" || got=$?
	[ "$got" = "$wanted" ] || { cat "$work/err" >&2; fail "status $got, not $wanted: $*"; }
}

# refuses WORDS COMMAND...: exit 2, one line that says so, nothing on stdout.
refuses() {
	local words=$1
	shift
	expect_status 2 "$@"
	[ "$(wc -l <"$work/err")" = 1 ] || fail "not one line: $(cat "$work/err")"
	grep -q "no usable NVIDIA device: .*$words" "$work/err" || fail "$(cat "$work/err")"
	[ ! -s "$work/out" ] || fail "stdout is not empty: $*"
}

# check PYTHON: the report in $work/r.json is valid and the expression holds.
check() {
	python3 -m json.tool "$work/r.json" >/dev/null || fail "not JSON"
	python3 - "$work/r.json" "$1" <<'PYTHON' || fail "does not hold: $1"
import json, sys
report = json.load(open(sys.argv[1]))
steps = {step["number"]: step for step in report["steps"]}
def records(number, measure):
    return [r for r in steps[number]["records"] if r["measure"] == measure]
sys.exit(0 if eval(sys.argv[2]) else 1)
PYTHON
}

# Only this test's own binary counts: its path is in a directory made above.
leftover() {
	for exe in /proc/[0-9]*/exe; do
		[ "$(readlink "$exe" 2>/dev/null)" = "$probe" ] && return 0
	done
	return 1
}

echo "usage and list"
expect_status 64 "$probe" --no-such-option
expect_status 64 "$probe" --step 99
expect_status 0 "$probe" --list
[ "$(wc -l <"$work/out")" = 15 ] || fail "--list does not show 15 steps"

echo "refusals"
if ! ldconfig -p | grep -q 'libcuda\.so\.1'; then
	refuses "libcuda.so.1" "$probe"
fi
mkdir "$work/broken" && : >"$work/broken/libcuda.so.1"
refuses "file too short" env LD_LIBRARY_PATH="$work/broken" "$probe"
refuses "device 0 was asked for, the driver shows 0" fake FAKE_DEVICES=0 "$probe"
refuses "device 3 was asked for, the driver shows 1" fake "$probe" --device 3
refuses "cuInit answers CUresult 999" fake FAKE_FAIL=cuInit "$probe"
refuses "crashed" fake FAKE_CRASH=cuInit "$probe"
refuses "timed out" fake FAKE_HANG=cuInit "$probe" --total-s 2
expect_status 3 fake "$probe" --step 12 --json "$work/no-such-directory/r.json"

echo "all steps"
fake "$probe" --quick --json "$work/r.json" --map "$work/map.tsv" >"$work/out" || fail "run"
check 'report["schema"] == "turnus-gpu-probe" and report["schema_version"] == 1'
check 'report["card"] == "Fake \"Card\" 1" and report["uuid"].startswith("GPU-abababab-")'
check 'all(report[k] for k in ("date", "driver_version", "cuda_version", "kernel_version", "host_cpu"))'
check 'sorted(steps) == list(range(15))'
check 'all(s["outcome"] == "done" and s["records"] for n, s in steps.items() if n != 10)'
check 'all(s["garbled_lines"] == 0 for s in report["steps"])'
check 'steps[10]["outcome"] == "failed"' # the fake has no hash kernels
check '{r["code"] for r in records(10, "error")} == {801}'
check '{r["chunk_mib"] for r in records(1, "handle cost")} == {2, 64, 256}'
check 'all(r["all_created"] for r in records(1, "create on a full card right after release"))'
check 'len(records(2, "copy rate")) == 7'
check 'len(records(3, "call while an own kernel runs")) == 14'
check 'any(r["kind"] == "memfd sealed" for r in records(4, "host registration"))'
check 'records(5, "difference")'
check 'len(records(6, "graph replay")) == 4 and all(r["correct"] for r in records(6, "graph replay"))'
check 'records(7, "managed pages after that")[0]["content_intact"]'
check 'len(records(8, "way in or out")) == 8'
check 'all(not r["all_calls_good"] and r["victim_intact"] for r in records(9, "checkpoint conclusion"))'
check 'any(r["call"] == "cuCheckpointProcessLock" and r["code"] == 801 for r in records(9, "checkpoint call"))'
check 'records(11, "lookup")[0]["names"] > 500 and records(11, "lookup")[0]["pointers_not_exported"] == 3'
check '{r["name"] for r in records(11, "lookup oddity")} == {"cuInit"}'
check 'any(r["code"] == -1 for r in records(12, "dma-buf export"))'
check 'records(14, "wake by another process, then launch")[0]["wakes"] > 0'
grep -q '^cuMemCreate	0	2000	cuMemCreate$' "$work/map.tsv" || fail "the map lacks cuMemCreate"
grep -q '\[6\] graph: done' "$work/out" || fail "the tables lack a step"

echo "a checkpoint that succeeds"
fake FAKE_CHECKPOINT=1 "$probe" --quick --step 9 --json "$work/r.json" >"$work/out" || fail "run"
check 'all(r["all_calls_good"] and r["victim_intact"] for r in records(9, "checkpoint conclusion"))'
check '{r["caller"] for r in records(9, "checkpoint call")} == {"as-is", "itself"}'

echo "report on stdout, tables on stderr"
fake "$probe" --step 12 >"$work/r.json" 2>"$work/err" || fail "run"
check 'sorted(steps) == [0, 12]'
grep -q 'dma-buf export' "$work/err" || fail "no tables on stderr"

echo "a crash, a hang, a failure"
fake FAKE_CRASH=cuGraphLaunch "$probe" --step 6 --json "$work/r.json" >"$work/out" || fail "run"
check 'steps[6]["outcome"] == "crashed" and steps[6]["signal"] == 6'
fake FAKE_CRASH=cuMemUnmap "$probe" --step 5 --json "$work/r.json" >"$work/out" || fail "run"
check 'steps[5]["outcome"] == "crashed" and len(steps[5]["records"]) > 20' # kept from before
start=$SECONDS
fake FAKE_HANG=cuMemSetAccess "$probe" --total-s 4 --json "$work/r.json" >"$work/out" || fail "run"
[ $((SECONDS - start)) -lt 8 ] || fail "a hang took $((SECONDS - start)) s"
check 'steps[1]["outcome"] == "timed out" and records(1, "granularity")'
check 'steps[14]["outcome"].startswith("skipped")'
fake FAKE_HANG=cuMemAllocManaged "$probe" --total-s 4 --step 7 --json "$work/r.json" >"$work/out" || fail "run"
check 'steps[7]["outcome"] in ("failed", "timed out")' # its peer hangs
fake FAKE_CRASH=cuMemAllocManaged "$probe" --step 7 --json "$work/r.json" >"$work/out" || fail "run"
check 'steps[7]["outcome"] == "failed" and records(7, "peer failed")[0]["why"] == "the peer ended"'
fake FAKE_FAIL=cuMemCreate "$probe" --quick --step 1 --json "$work/r.json" >"$work/out" || fail "run"
check 'steps[1]["outcome"] == "failed" and records(1, "error")[0]["code"] == 999'
sleep 0.3
leftover && fail "a process of the probe is still there"

if command -v ptxas >/dev/null; then
	echo "kernels by ptxas"
	ptxas -arch="${PTXAS_ARCH:-sm_90}" -o "$work/kernels.cubin" kernels.ptx || fail "ptxas"
fi
echo "all good"
