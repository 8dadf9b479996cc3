#!/usr/bin/env bash
# Generates the client packages of other languages in gen/ from proto/pointsman/v1:
#
#   proto/stubs/generate.sh python typescript java
#
# Nothing in gen/ is written by hand: a package's manifest, README and the like
# come from the package/ folder of its language beside this script, its version
# from VERSION, its licence from LICENSE, and all the rest from the code
# generators, at the versions pinned here. The generators are installed under
# dist/stubs, which git does not know.
set -euo pipefail
cd "$(dirname "$0")/../.."

stubs=proto/stubs
tools=dist/stubs
version=$(<$stubs/VERSION)
protos=(pointsman/v1/decision.proto pointsman/v1/error_reason.proto)

die() { echo "generate: $*" >&2; exit 1; }
need() { command -v "$1" >/dev/null || die "$1 is missing: $2"; }

# begin LANGUAGE: an empty package with its manifest.
begin() {
  rm -rf "gen/$1"
  mkdir -p "gen/$1"
  cp -R "$stubs/$1/package/." "gen/$1/"
  cp LICENSE "gen/$1/"
  find "gen/$1" -type f -exec perl -pi -e "s/\@VERSION\@/$version/g" {} +
}

# seal LANGUAGE: notes the digest of all that went in and all that came out, so
# that a test without any of these tools sees a stub that was edited, or forgotten.
seal() {
  local sum=(sha256sum)
  command -v sha256sum >/dev/null || sum=(shasum -a 256)
  {
    printf '%s\n' LICENSE $stubs/generate.sh $stubs/VERSION "${protos[@]/#/proto/}"
    find "$stubs/$1" "gen/$1" -type f
  } | LC_ALL=C sort | xargs "${sum[@]}" >"gen/$1.sha256"
}

# Code that grpcio-tools generates runs with its own and later versions of grpcio,
# and with its own and the next major version of protobuf. So the generator is not
# the newest: it is the oldest that is good enough.
python() {
  need python3 "install Python 3.10 or newer with venv (Debian: apt install python3-venv)"
  local venv=$tools/python
  if ! cmp -s $stubs/python/requirements.txt "$venv/requirements.txt"; then
    rm -rf "$venv"
    python3 -m venv "$venv" || die "python3 has no venv (Debian: apt install python3-venv)"
    "$venv/bin/pip" install --quiet --requirement $stubs/python/requirements.txt
    cp $stubs/python/requirements.txt "$venv/"
  fi
  begin python
  PATH="$PWD/$venv/bin:$PATH" "$venv/bin/python" -m grpc_tools.protoc --proto_path=proto \
    --python_out=gen/python --grpc_python_out=gen/python --mypy_out=quiet:gen/python --mypy_grpc_out=quiet:gen/python \
    "${protos[@]}"
  # The plug-ins write a service file for every proto file, also where there is no service.
  rm -f gen/python/pointsman/v1/error_reason_pb2_grpc.py*
}

typescript() {
  need go "install Go 1.26 or newer (https://go.dev/doc/install)"
  need node "install Node.js 20 or newer"
  need npm "install npm (Debian: apt install npm)"
  local modules=$tools/typescript
  if ! cmp -s $stubs/typescript/package.json "$modules/package.json"; then
    rm -rf "$modules"
    mkdir -p "$modules"
    npm install --silent --no-audit --no-fund --no-save --prefix "$modules" \
      $(node -p "Object.entries(require('./$stubs/typescript/package.json').devDependencies).map(e => e.join('@')).join(' ')")
    cp $stubs/typescript/package.json "$modules/"
  fi
  begin typescript
  go tool -modfile=tools.mod buf generate --template $stubs/typescript/buf.gen.yaml --path proto/pointsman/v1
}

# Maven Central has the compiler and its plug-in as executables for each platform.
protoc_version=4.33.5
grpc_java_version=1.79.0
java() {
  need go "install Go 1.26 or newer (https://go.dev/doc/install)"
  need mvn "install Maven 3.8 or newer and a JDK of 17 or newer (Debian: apt install maven)"
  local os arch
  case $(uname -s) in Linux) os=linux ;; Darwin) os=osx ;; *) die "no protoc for $(uname -s) is known here" ;; esac
  case $(uname -m) in x86_64 | amd64) arch=x86_64 ;; aarch64 | arm64) arch=aarch_64 ;; *) die "no protoc for $(uname -m) is known here" ;; esac
  fetch "com.google.protobuf:protoc:$protoc_version:exe:$os-$arch" protoc
  fetch "io.grpc:protoc-gen-grpc-java:$grpc_java_version:exe:$os-$arch" protoc-gen-grpc-java
  begin java
  go tool -modfile=tools.mod buf generate --template $stubs/java/buf.gen.yaml --path proto/pointsman/v1
}

# fetch ARTIFACT NAME: the executable as dist/stubs/java/NAME.
fetch() {
  local group artifact version extension platform
  IFS=: read -r group artifact version extension platform <<<"$1"
  local file=$tools/java/$artifact-$version-$platform.$extension
  if [ ! -x "$file" ]; then
    mkdir -p $tools/java
    mvn --batch-mode --quiet dependency:copy -Dartifact="$group:$artifact:$version:$extension:$platform" -DoutputDirectory="$PWD/$tools/java"
    chmod +x "$file"
  fi
  ln -sf "$(basename "$file")" "$tools/java/$2"
}

[ $# -gt 0 ] || die "say which: python, typescript, java"
for language in "$@"; do
  case $language in
    python | typescript | java) "$language" && seal "$language" ;;
    *) die "no language $language: python, typescript, java" ;;
  esac
done
