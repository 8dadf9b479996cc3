#!/usr/bin/env bash
# Builds the Jaeger that go.mod here pins, unless it has been built already, and prints
# its path. It takes some six minutes on two cores, once for a version.
set -euo pipefail
cd "$(dirname "$0")"

version=$(go list -m -f '{{.Version}}' github.com/jaegertracing/jaeger)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/pointsman
binary=$cache/jaeger-$version
if [ ! -x "$binary" ]; then
	echo "building Jaeger $version, which takes minutes and happens once" >&2
	mkdir -p "$cache"
	# Renamed at the end, so that an interrupted build leaves nothing that looks whole.
	CGO_ENABLED=0 nice go build -trimpath -o "$binary.part" github.com/jaegertracing/jaeger/cmd/jaeger
	mv "$binary.part" "$binary"
fi
echo "$binary"
