#!/bin/sh
# Installs the local DynamoDB, dynoxide, for this platform into DIR, and does nothing where it is already there.
# npm checks the package against the integrity hash in the committed lock file.
# Usage: install.sh DIR
set -eu

dir=${1:?usage: install.sh DIR}
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)

case $(uname -s) in
Linux) os=linux ;;
Darwin) os=darwin ;;
*) os=$(uname -s | tr '[:upper:]' '[:lower:]') ;;
esac
case $(uname -m) in
x86_64 | amd64) cpu=x64 ;;
aarch64 | arm64) cpu=arm64 ;;
*) cpu=$(uname -m) ;;
esac
platform=$os-$cpu

manifest=$here/$platform
if [ ! -f "$manifest/package-lock.json" ]; then
	if command -v dynoxide >/dev/null 2>&1; then
		exit 0
	fi
	echo "install.sh: no dynoxide is pinned for $platform: put a dynoxide on your PATH, or give --endpoint URL to use another DynamoDB" >&2
	exit 2
fi
version=$(sed -n "s|.*\"@dynoxide/$platform\": \"\([0-9.]*\)\".*|\1|p" "$manifest/package.json")
target=$dir/$version
if [ -x "$target/node_modules/@dynoxide/$platform/dynoxide" ]; then
	exit 0
fi
if ! command -v npm >/dev/null 2>&1; then
	echo "install.sh: npm is missing: install Node.js, or put dynoxide $version on your PATH" >&2
	exit 2
fi

# Into a folder of its own first, so that an interrupted install is never taken for a whole one.
mkdir -p "$dir"
tmp=$(mktemp -d "$dir/installing.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM
cp "$manifest/package.json" "$manifest/package-lock.json" "$tmp/"
echo "installing dynoxide $version for $platform into $target"
(cd "$tmp" && npm ci --cache "$tmp/cache" --ignore-scripts --no-audit --no-fund --no-update-notifier --loglevel=error)
rm -rf "$tmp/cache"
rm -rf "$target"
chmod 755 "$tmp"
mv "$tmp" "$target"
