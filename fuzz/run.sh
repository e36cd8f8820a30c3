#!/bin/sh
# Fuzzes one target for a bounded time, without cargo-fuzz.
#
#   fuzz/run.sh TARGET SECONDS [libFuzzer option ...]     fuzz; new inputs land in fuzz/corpus/TARGET
#   fuzz/run.sh minimise TARGET                           keep only inputs that reach something no other reaches
#
# Needs a nightly toolchain (for the sanitizer and coverage flags) and g++ (libFuzzer is C++).
# A finding is written to fuzz/artifacts/TARGET, and the exit status is then not 0.
set -eu

die() { echo "fuzz/run.sh: $*" >&2; exit 2; }

cd "$(dirname "$0")"
[ $# -ge 2 ] || die "usage: fuzz/run.sh TARGET SECONDS [option ...] | fuzz/run.sh minimise TARGET"
verb=fuzz
if [ "$1" = minimise ]; then verb=minimise; shift; fi
target=$1; shift
[ -f "fuzz_targets/$target.rs" ] || die "no target '$target'; there are: $(cd fuzz_targets && ls | sed 's/\.rs$//' | tr '\n' ' ')"
cargo +nightly --version >/dev/null 2>&1 || die "no nightly toolchain; get one with: rustup toolchain install nightly --profile minimal"
command -v g++ >/dev/null || die "no g++, which builds libFuzzer; get it with: apt-get install g++"

# What cargo-fuzz passes: edge counters for libFuzzer, comparison tracing, the address sanitizer. An explicit --target keeps
# the flags away from build scripts and macros.
host=$(rustc +nightly -vV | sed -n 's/^host: //p')
export RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing -Zsanitizer=address -Ccodegen-units=1"
target_dir=${CARGO_TARGET_DIR:-target}
cargo +nightly build --release --target "$host" --target-dir "$target_dir" --bin "$target"
binary=$target_dir/$host/release/$target

mkdir -p "corpus/$target" "artifacts/$target"
case $verb in
fuzz)
    seconds=$1; shift
    exec "$binary" -max_total_time="$seconds" -max_len=4096 -timeout=10 -rss_limit_mb=2048 \
        -artifact_prefix="artifacts/$target/" -print_final_stats=1 "$@" "corpus/$target"
    ;;
minimise)
    kept=$(mktemp -d "corpus/.$target.XXXXXX")
    trap 'rm -rf "$kept"' EXIT
    "$binary" -merge=1 -max_len=4096 "$kept" "corpus/$target"
    [ -n "$(ls "$kept")" ] || die "the merge kept nothing; corpus/$target is unchanged"
    rm -rf "corpus/$target"
    mv "$kept" "corpus/$target"
    chmod 755 "corpus/$target"
    trap - EXIT
    ;;
esac
