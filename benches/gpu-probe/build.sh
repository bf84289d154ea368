#!/bin/sh
# Builds gpu-probe: gcc and glibc are all it needs. Usage: build.sh [output file]
set -eu
out=$(realpath -m "${1:-$(dirname "$0")/../../target/gpu-probe/gpu-probe}")
mkdir -p "$(dirname "$out")"
cd "$(dirname "$0")" # kernels.ptx and names.txt are taken in from here
${CC:-gcc} -std=gnu11 -O2 -g -Wall -Wextra -Werror -o "$out" ./*.c -ldl -lpthread -lm
echo "$out"
