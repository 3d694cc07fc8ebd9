#!/bin/sh
# Installs the TypeScript compiler that checks and compiles the client into DIR, and does nothing where it is already there.
# npm checks the packages against the integrity hashes in the committed lock file. The client itself needs neither.
# Usage: install.sh DIR
set -eu

dir=${1:?usage: install.sh DIR}
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
version=$(sed -n 's|.*"typescript": "\([0-9.]*\)".*|\1|p' "$here/package.json")
target=$dir/$version
if [ -f "$target/node_modules/typescript/bin/tsc" ] && cmp -s "$here/package-lock.json" "$target/package-lock.json"; then
	exit 0
fi
if ! command -v npm >/dev/null 2>&1; then
	echo "install.sh: npm is missing, so the TypeScript client will not be tested: install Node.js" >&2
	exit 0
fi

# Into a folder of its own first, so that an interrupted install is never taken for a whole one.
mkdir -p "$dir"
tmp=$(mktemp -d "$dir/installing.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM
cp "$here/package.json" "$here/package-lock.json" "$tmp/"
echo "installing TypeScript $version into $target"
(cd "$tmp" && npm ci --cache "$tmp/cache" --ignore-scripts --no-audit --no-fund --no-update-notifier --loglevel=error)
rm -rf "$tmp/cache"
rm -rf "$target"
chmod 755 "$tmp"
mv "$tmp" "$target"
