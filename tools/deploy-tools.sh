#!/bin/sh
# Installs the Python tools that check, build and try out the deployment into DIR/sam and DIR/ministack, and does nothing
# where they are already there. pip checks each package against the hash in the committed lock file.
# Usage: deploy-tools.sh DIR
set -eu

dir=${1:?usage: deploy-tools.sh DIR}
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
oldest='3, 10'

# A name on the PATH may be a stub that runs nothing, and python3 may be an old one beside a newer one.
find_python() {
	for name in python3 python3.14 python3.13 python3.12 python3.11 python3.10; do
		if "$name" -c "import sys; sys.exit(sys.version_info < ($oldest))" >/dev/null 2>&1; then
			echo "$name"
			return
		fi
	done
	echo "deploy-tools.sh: no Python of version $(echo "$oldest" | tr -d ' ' | tr , .) or newer is on the PATH" >&2
	return 2
}

install() {
	lock=$here/requirements-$1.txt
	venv=$dir/$1
	stamp=$venv/installed.txt
	if cmp -s "$lock" "$stamp" && "$venv/bin/python" -c '' 2>/dev/null; then
		return
	fi
	python=$(find_python)
	echo "installing $(sed -n 's/^\([a-z-]*==[^ ]*\)$/\1/p' "$here/requirements-$1.in" | tr '\n' ' ')into $venv"
	rm -rf "$venv"
	"$python" -m venv "$venv" || {
		echo "deploy-tools.sh: $python cannot make virtual environments: install its venv module (python3-venv on Debian)" >&2
		return 2
	}
	# The lock file is the whole closure. What is not compiled now is compiled when it is first imported, and most never is.
	"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir --no-compile --no-deps \
		--require-hashes --only-binary :all: -r "$lock"
	"$venv/bin/python" -m pip check --disable-pip-version-check >/dev/null
	cp "$lock" "$stamp" # last: an interrupted install is none
}

install sam
install ministack
