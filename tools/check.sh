#!/bin/sh
# Checks what tests do not: format, lint, vet, modules, import order, generated files. All of them run, whichever fails;
# it changes nothing in the work tree.
# Usage: check.sh GOFUMPT GOLANGCI_LINT
set -eu

gofumpt=${1:?usage: check.sh GOFUMPT GOLANGCI_LINT}
golangci_lint=${2:?usage: check.sh GOFUMPT GOLANGCI_LINT}
cd "$(dirname "$0")/.."
failed=

step() {
	name=$1
	shift
	if "$@"; then
		echo "ok      $name"
	else
		echo "FAILED  $name" >&2
		failed="$failed $name"
	fi
}

files() { git ls-files -z --cached --others --exclude-standard -- "$@"; }

format() {
	out=$(files '*.go' | xargs -0 ls -d 2>/dev/null | xargs "$gofumpt" -l) # ls leaves out what was deleted
	[ -z "$out" ] || {
		printf 'not formatted, run make fmt:\n%s\n' "$out" >&2
		return 1
	}
}

# Runs go generate in a copy and compares.
generated() {
	if ! files '*.go' | xargs -0 grep -ls '^//go:generate ' >/dev/null; then
		return 0
	fi
	mkdir -p .local/tmp
	tmp=$(mktemp -d .local/tmp/generate.XXXXXX)
	files | tar -c --null --files-from=- --ignore-failed-read 2>/dev/null | tar -x -C "$tmp"
	cp -R "$tmp" "$tmp.before"
	rc=0
	(cd "$tmp" && go generate ./...) || rc=1
	diff -r "$tmp.before" "$tmp" >&2 || {
		echo 'generated files are not current, run: go generate ./...' >&2
		rc=1
	}
	rm -rf "$tmp" "$tmp.before"
	return $rc
}

step format format
step vet go vet ./...
step lint "$golangci_lint" run --allow-parallel-runners ./...
step order go test ./tests -run 'ImportOrder|BannedUses'
step verify go mod verify
step tidy go mod tidy -diff
step generated generated

[ -z "$failed" ] || {
	echo "check failed:$failed" >&2
	exit 1
}
