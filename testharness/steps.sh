#!/bin/sh
# Breaks something at every step and raises a token between any two messages, and
# says at the end what was tried and found: steps.sh LANES ALL_PAIRS SEED [PART].
# With a PART it is at one of so many. It fails if anything was found.
set -eu
cd "$(dirname "$0")/.."
part=${4:-1}
export FENCE_STEPS_LANES="$1" FENCE_STEPS_ALL_PAIRS="$2" FENCE_STEPS_SINGLES="$part" FENCE_STEPS_PAIRS="$part" FENCE_STEPS_KILLED="$part"
export FENCE_RAISED_RIGS="$1" FENCE_RAISED_SEED="$3" FENCE_RAISED_STRIDE="$part" FENCE_RAISED_RANDOM=100
log=$(mktemp)
trap 'rm -f "$log" "$log.status"' EXIT
trap 'exit 1' HUP INT TERM # which ends with the line above
{
	status=0
	# One package after the other, which has go test print what it has at once.
	"${GO:-go}" test -p 1 -count=1 -timeout 0 -v -run '^(TestSteps|TestSteps_Killed|TestScripts_Raised)$' ./testharness/steps ./testharness/wire 2>&1 || status=$?
	echo "$status" >"$log.status"
} | tee "$log"
echo
echo "In all, with seed $3 for the random scripts:"
sed -n 's/.*_test\.go:[0-9]*: total: /  /p' "$log"
exit "$(cat "$log.status")"
