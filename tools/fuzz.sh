#!/bin/sh
# Runs every fuzz target of the module for some time each.
# Each find is made smaller ten times at most: by default Go takes a minute for one, which is all the time there is.
# Usage: fuzz.sh TIME
set -eu

each=${1:?usage: fuzz.sh TIME}
cd "$(dirname "$0")/.."
for pkg in $(go list ./...); do
	for target in $(go test -list '^Fuzz' "$pkg" | grep '^Fuzz' || true); do
		echo "$pkg $target"
		go test -run '^$' -fuzz "^$target\$" -fuzzminimizetime 10x -fuzztime "$each" "$pkg"
	done
done
