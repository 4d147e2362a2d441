#!/usr/bin/env bash
# Every script parses, may be executed, and says what it does; every package says why it is needed.
set -euo pipefail
cd "$1"

failed=0
complain() {
  echo "$1" >&2
  failed=1
}

checked=0
for file in scripts/* .ci/run tests/*.sh; do
  [[ -f $file && $file != *.txt ]] || continue
  head -n 1 "$file" | grep -q '^#!/usr/bin/env bash$' || continue
  checked=$((checked + 1))
  bash -n "$file" || complain "$file: does not parse"
  [[ -x $file ]] || complain "$file: is not executable"
  sed -n 2p "$file" | grep -q '^# ' || complain "$file: the second line does not say what it does"
  grep -q '^set -euo pipefail$' "$file" || complain "$file: goes on after errors"
done
[[ $checked -ge 5 ]] || complain "only $checked scripts were found"

while read -r group package why; do
  [[ -z $group || $group == \#* ]] && continue
  [[ $group == build || $group == fast || $group == test || $group == fuzz ]] || complain "packages.txt: unknown group '$group'"
  [[ -n $package && -n $why ]] || complain "packages.txt: '$package' does not say why"
done <scripts/packages.txt

exit "$failed"
