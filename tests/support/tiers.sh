#!/usr/bin/env bash
# Both tiers of tests, whatever either says: those without genuine weights, and those with them. Side by side
# where there are cores, each on its own: threads of two processes on the same cores slow each other many times.
#
#     bash tests/support/tiers.sh PYTHON
set -uo pipefail
python=$1
read -ra cores < <("$python" -c 'import os; print(*sorted(os.sched_getaffinity(0)))')
half=$((${#cores[@]} / 2))

on() { # CORES COMMAND...: the command, on these cores alone
    local list=$1
    shift
    taskset --cpu-list "$list" "$@"
}

status=0
if ((half == 0)); then
    "$python" -m pytest -q -m "not real" || status=1
    "$python" -m pytest -q -m real || status=1
    exit "$status"
fi

first=$(IFS=,; echo "${cores[*]:0:half}")
second=$(IFS=,; echo "${cores[*]:half}")
log=$(mktemp)
trap 'rm -f "$log"' EXIT
on "$second" "$python" -m pytest -q -m real -p no:cacheprovider >"$log" 2>&1 &
real=$!
on "$first" "$python" -m pytest -q -m "not real" || status=1
wait "$real" || status=1
cat "$log"
exit "$status"
