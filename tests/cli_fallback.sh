#!/bin/sh
# Where the first way of seeing kernels is not to be had: the other one, or none. In every case the
# host's output and exit status are its own, and the record says why. A host on a fake driver, which
# calls the injected library as the driver does, and a fake CUPTI.
. "${abs_top_srcdir:?}/tests/testlib.sh"
case $SANITIZE in
no | '') ;;
*)
    skip "a way out is found" "the sanitizers' own libraries must stand before dlsym"
    done_testing ;;
esac
host=$abs_top_builddir/tests/cuda_host image=$data/plain.cubin
cd "$tmp" || exit 99
mkdir driver cupti
ln -s "$abs_top_builddir/tests/libfakecuda.so" driver/libcuda.so.1
ln -s "$abs_top_builddir/tests/libfakecupti.so" cupti/libcupti.so.13
sql() { sqlite3 -batch run.db "$1"; }
PROBE_LOG=$tmp/probe.log
export PROBE_LOG

# Run the host and compare what shows; the record is left for the questions that follow.
wanted=''
look() { # NAME VARIABLE=VALUE... (LIB: where libraries are looked for; WAY: dlsym or proc)
    name=$1 lib=$tmp/driver:$tmp/cupti way=proc
    shift
    rm -f run.db*
    for set; do
        case $set in LIB=*) lib=${set#*=} ;; WAY=*) way=${set#*=} ;; esac
    done
    LD_LIBRARY_PATH=$lib "$host" "$way" "$image" forward >want 2>&1
    wanted="$? $(cat want)"
    run ${under:-} env "$@" LD_LIBRARY_PATH="$lib" "$host" "$way" "$image" forward
    is "$name: output and exit status are the host's" "$status $(cat "$tmp/out" "$tmp/err")" "$wanted"
}
# Forwards, launches that are recorded, and the reasons.
found() {
    sql "SELECT count(*) FROM forwards; SELECT coalesce(sum(n_launches), 0) FROM kernel_usage
        WHERE arm_id IS NULL; SELECT kind || ': ' || detail FROM gaps" | xargs -d '\n'
}
instead="the driver's functions are wrapped instead"
preload="kernels are not recorded: to wrap the driver's functions, preload the library too"
taken="cuptiSubscribe: error 39: CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED; the subscriber is \
CUPTI for another tool"

# Preloaded.
look "preloaded" LD_PRELOAD="$probe"
is "preloaded: the driver is wrapped, and nothing is missing" "$(found)" "3 18"
sql "SELECT * FROM kernel_usage" >usage
look "CUPTI is asked for" LD_PRELOAD="$probe" PROBE_CUPTI=cupti
is "CUPTI is asked for: the wrappers, which are there, leave it to CUPTI" "$(found)" "3 0"
is "CUPTI is asked for: it is in use" "$(sql "SELECT cupti_version FROM runs")" 130001
for way in dlsym proc; do
    look "taken, $way" LD_PRELOAD="$probe" PROBE_CUPTI=cupti WAY=$way \
        FAKE_CUPTI_FAIL=cuptiSubscribe_v2:39
    is "taken, $way: the driver is wrapped from the first call on" "$(found)" \
        "3 18 cupti_refused: $taken; $instead"
    is "taken, $way: the same is recorded as with the wrappers alone" \
        "$(sql "SELECT * FROM kernel_usage")" "$(cat usage)"
done
is "taken: the run has its way of seeing kernels" \
    "$(sql "SELECT value FROM settings WHERE name = 'kernels_seen'")" interposed
look "half enabled" LD_PRELOAD="$probe" PROBE_CUPTI=cupti FAKE_CUPTI_FAIL=cuptiEnableCallback:15 \
    FAKE_CUPTI_FAIL_FROM=5
is "half enabled: nothing is recorded twice" "$(found)" \
    "3 18 cupti_refused: cuptiEnableCallback: error 15: CUPTI_ERROR_UNKNOWN; $instead"
look "CUPTI of another version" LD_PRELOAD="$probe" PROBE_CUPTI=cupti FAKE_CUPTI_VERSION=120400
is "CUPTI of another version: the driver is wrapped" "$(found | sed 's/refused:.*libcupti/refused: libcupti/')" \
    "3 18 cupti_refused: libcupti.so.13 is version 120400, needed is 130001 to 139999; $instead"
look "another tool is injected" LD_PRELOAD="$probe" PROBE_CUPTI=cupti CUDA_INJECTION64_PATH=other.so
is "another tool is injected: the driver is wrapped" "$(found)" "3 18 cupti_refused: the CUDA driver \
called no InitializeInjection of this library: CUDA_INJECTION64_PATH names another; $instead"
look "injected too" LD_PRELOAD="$probe" CUDA_INJECTION64_PATH="$probe"
is "injected too: it is one library, and sees each launch once" "$(found)" "3 18"
look "off" LD_PRELOAD="$probe" PROBE_CUPTI=off
is "off: the record says so" "$(found)" "3 0 cupti_refused: PROBE_CUPTI=off"
look "nonsense" LD_PRELOAD="$probe" PROBE_CUPTI=nonsense
is "a value that is none: the default is used, as is told" "$(found) $(cat probe.log)" \
    "3 18 libprobe: PROBE_CUPTI=nonsense: not one of auto|cupti|interpose|off; auto is used"
rm -f probe.log

# Injected, and no more than that.
look "injected" CUDA_INJECTION64_PATH="$probe"
is "injected: CUPTI is in use" "$(found) $(sql "SELECT cupti_version FROM runs")" "3 0 130001"
look "injected, taken" CUDA_INJECTION64_PATH="$probe" FAKE_CUPTI_FAIL=cuptiSubscribe_v2:39
is "injected, taken: forwards, no kernels, and the reason" "$(found)" \
    "3 0 cupti_refused: $taken; $preload"
look "injected, to be wrapped" CUDA_INJECTION64_PATH="$probe" PROBE_CUPTI=interpose
is "injected, to be wrapped: that cannot be, and the record says so" "$(found)" \
    "3 0 cupti_refused: PROBE_CUPTI=interpose; $preload"
look "injected, off" CUDA_INJECTION64_PATH="$probe" PROBE_CUPTI=off
is "injected, off: the record says so" "$(found)" "3 0 cupti_refused: PROBE_CUPTI=off"

# No CUPTI at all. A toolkit that stands where the probe looks must not be seen.
under=''
toolkit=$(realpath /usr/local/cuda 2>/dev/null)
if ldconfig -p | grep -q 'libcupti\.so\.13' || [ -d "$toolkit" ]; then
    # shellcheck disable=SC2016
    printf '#!/bin/sh\nmount -t tmpfs none "%s" && exec "$@"\n' "$toolkit" >hide && chmod +x hide
    under="unshare --mount $tmp/hide"
    $under true 2>/dev/null || under=no
fi
if [ "$under" = no ]; then
    skip "no CUPTI: the driver is wrapped" "there is one here, and it cannot be hidden"
    skip "injected, no CUPTI: forwards, no kernels, and the reason" "the same"
else
    look "no CUPTI" LD_PRELOAD="$probe" PROBE_CUPTI=cupti LIB="$tmp/driver"
    is "no CUPTI: the driver is wrapped" "$(found)" \
        "3 18 cupti_refused: no libcupti.so.13 was found; $instead"
    look "injected, no CUPTI" CUDA_INJECTION64_PATH="$probe" LIB="$tmp/driver"
    is "injected, no CUPTI: forwards, no kernels, and the reason" "$(found)" \
        "3 0 cupti_refused: no libcupti.so.13 was found; $preload"
fi
under=''

# A process without CUDA has nothing to miss.
"$abs_top_builddir/tests/target" rows >want 2>&1
wanted="$? $(cat want)"
for choice in auto cupti interpose off; do
    rm -f run.db*
    run env LD_PRELOAD="$probe" PROBE_CUPTI=$choice "$abs_top_builddir/tests/target" rows
    is "no CUDA, $choice: the host runs on, and nothing is missing" \
        "$status $(cat "$tmp/out" "$tmp/err") $(sql "SELECT count(*) FROM logits; SELECT kind FROM gaps" | xargs)" \
        "$wanted 100"
done

# Code is read without libelf, or any library that the host has not.
look "libraries" LD_PRELOAD="$probe" LD_DEBUG=files LD_DEBUG_OUTPUT="$tmp/debug" LIB="$tmp/driver"
is "code hashes need no library but the C library's" \
    "$(sql "SELECT count(code_hash) FROM kernels") $(cat debug.* |
        sed -n 's|.*calling init: .*/||p' | sort -u | xargs)" \
    "2 ld-linux-x86-64.so.2 libc.so.6 libcuda.so.1 libm.so.6 libprobe.so"
is "nothing was complained about" "$(cat probe.log 2>/dev/null)" ""
done_testing
