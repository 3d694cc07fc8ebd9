#!/bin/sh
# Builds each main package under a lambda folder into DIR/<path, with - for />/bootstrap, as provided.al2023 runs it.
# Usage: build-lambda.sh DIR ARCH
set -eu

dir=${1:?usage: build-lambda.sh DIR ARCH}
arch=${2:?usage: build-lambda.sh DIR ARCH}
cd "$(dirname "$0")/.."
module=$(go list -m)
for pkg in $(go list -f '{{if eq .Name "main"}}{{.ImportPath}}{{end}}' ./... | grep '/lambda\(/\|$\)' || true); do
	name=$(echo "${pkg#"$module"/}" | tr / -)
	CGO_ENABLED=0 GOOS=linux GOARCH=$arch go build -trimpath -tags lambda.norpc -ldflags '-s -w' -o "$dir/$name/bootstrap" "$pkg"
	echo "$dir/$name/bootstrap"
done
