#!/bin/sh
# Runs one example beside a ledger of its own: starts `toolledger dev` in memory on free ports, runs the program with the
# variables that it needs, and stops dev again.
# Usage: examples/run.sh NAME [ARGUMENT…], such as: examples/run.sh quickstart
set -eu

name=${1:?usage: examples/run.sh NAME [ARGUMENT…]}
shift
cd "$(dirname "$0")/.."
dir=$(mktemp -d)
dev=
trap 'test -z "$dev" || { kill "$dev" 2>/dev/null || :; wait "$dev" 2>/dev/null || :; }; rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM

program=./examples/$name
test ! -d "$program/demo" || program=$program/demo
go build -o "$dir/toolledger" ./cmd/toolledger
go build -o "$dir/example" "$program"
"$dir/toolledger" dev --json --addr 127.0.0.1:0 >"$dir/events" 2>"$dir/log" &
dev=$!
waited=0
until test -s "$dir/events"; do
	kill -0 "$dev" 2>/dev/null || { cat "$dir/log" >&2; exit 1; }
	waited=$((waited + 1))
	test "$waited" -lt 300 || { echo "toolledger dev does not start" >&2; exit 1; }
	sleep 0.1
done
# The first line says where everything is.
said() { sed -n "1s/.*\"$1\":\"\([^\"]*\)\".*/\1/p" "$dir/events"; }
AWS_ENDPOINT_URL_DYNAMODB=$(said dynamodb)
AWS_ENDPOINT_URL_DYNAMODB_STREAMS=$AWS_ENDPOINT_URL_DYNAMODB
AWS_REGION=$(said region)
LEDGER_TABLE=$(said table)
LEDGER_URL=$(said http)
AWS_ACCESS_KEY_ID=local AWS_SECRET_ACCESS_KEY=local
TOOLLEDGER_EVENTS=$dir/events
export AWS_ENDPOINT_URL_DYNAMODB AWS_ENDPOINT_URL_DYNAMODB_STREAMS AWS_REGION LEDGER_TABLE LEDGER_URL AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY TOOLLEDGER_EVENTS
"$dir/example" "$@"
