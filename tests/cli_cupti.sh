#!/bin/sh
# Kernels seen through CUPTI: callbacks that were recorded on an H200 (gpu_cases under gpu_trace,
# driver 580.159, CUPTI 13.0) are played back to the injected library by a fake libcupti, which
# delivers only what was enabled; and every way in which CUPTI can refuse.
. "${abs_top_srcdir:?}/tests/testlib.sh"
case $SANITIZE in
*address* | *thread*)
    skip "a recording is played back" "a library of a sanitizer cannot be loaded later"
    done_testing ;;
esac
mkdir "$tmp/lib" "$tmp/saved"
ln -s "$abs_top_builddir/tests/libfakecupti.so" "$tmp/lib/libcupti.so.13"
cd "$tmp" || exit 99
sql() { sqlite3 -batch run.db "$1"; }
replay() { # VARIABLE=VALUE...
    rm -f run.db* probe.log
    # shellcheck disable=SC2086
    run env PROBE_LOG="$tmp/probe.log" "$@" "$abs_top_builddir/tests/cupti_replay" "$probe" \
        "$tmp/lib" "$data/cases.trace" $engine
}
engine=

replay PROBE_SAVE_CUBINS="$tmp/saved"
is "the injected library takes the callbacks" "$status $(head -1 "$tmp/out")" "0 injected 1"
is "what one process launched on the GPU, by kernel, grid and block" \
    "$(sql "SELECT kernel, grid_x, block_x, dynamic_smem_bytes, sum(n_launches) FROM kernel_usage
        GROUP BY 1,2,3,4 ORDER BY 1,2,3")" "$(cat "$data/cases.want")"
is "that is as many as CUPTI's activity records counted" \
    "$(sql "SELECT sum(n_launches) FROM kernel_usage")" 65
is "all code is known by its handle" \
    "$(sql "SELECT DISTINCT resolve, arch, code_hash IS NOT NULL FROM kernels
        JOIN modules USING(module_id)")" "exact|90|1"
is "registers and static shared memory" \
    "$(sql "SELECT DISTINCT name, registers, static_smem_bytes FROM kernels ORDER BY 1")" "_Z3addPff|8|0
_Z5scalePff|8|0
_Z6sharedPf|10|1024
_Z7dynamicPf|10|0
_Z9clusteredPf|8|0
_Z9templatedILi3EEvPf|8|0
plain|8|0"
is "clusters, of the launch and of the kernel; attributes" \
    "$(sql "SELECT name, cluster_x, coalesce(attributes, '') FROM launch_configs JOIN kernels
        USING(kernel_id) WHERE cluster_x > 0 OR attributes IS NOT NULL ORDER BY 1,2")" \
    "_Z3addPff||cooperative=1
_Z3addPff|2|programmatic_serialization=1
_Z9clusteredPf|2|"
is "each version of a graph" "$(sql "SELECT group_concat(version || ':' || n, ' ') FROM graph_execs
    JOIN kernel_lists USING(kernel_list_id)")" "0:6 1:6 2:6 0:6 0:6 1:5 0:4 0:1"
is "the version of CUPTI" "$(sql "SELECT cupti_version FROM runs")" 130001
is "a graph with a conditional node is declared" \
    "$(sql "SELECT kind, count FROM gaps ORDER BY 1")" "forwards_unmarked|1
graph_conditional|1"
is "code images are kept where asked for, under their hash" \
    "$(cd saved && sha256sum -- * | awk '{ print ($1 ".cubin" == $2) }' | xargs)" "1 1"
is "as Nsight Systems calls it" "$(sql "SELECT count(*), sum(registersPerThread > 0)
    FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds ON id = mangledName")" "65|65"

engine=forward
replay X=1
is "a forward that an engine marks has what was launched in it" \
    "$(sql "SELECT n_tokens, n FROM forwards JOIN kernel_lists USING(kernel_list_id)")" "1|65"

# Refusals: the host runs on, and the reason is told where it is asked for.
for fault in cuptiSubscribe_v2:39 cuptiSubscribe_v2:35 cuptiEnableCallback:15 \
    cuptiGetVersion:999; do
    replay FAKE_CUPTI_FAIL=$fault
    is "$fault: the host runs on" "$status $(cat "$tmp/out")" "0 injected 1
callbacks 0"
    is "$fault: no word without being asked" "$(cat probe.log 2>/dev/null)" ""
    is "$fault: the database says why" "$(sql "SELECT count, detail LIKE '${fault%%[:_]*}: error ${fault#*:}%'
        FROM gaps WHERE kind = 'cupti_refused'")" "1|1"
done
replay FAKE_CUPTI_FAIL=cuptiSubscribe_v2:39
is "another subscriber is named" "$(sql "SELECT detail FROM gaps WHERE kind = 'cupti_refused'")" \
    "cuptiSubscribe: error 39: CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED; the subscriber is CUPTI for another tool; kernels are not recorded: \
to wrap the driver's functions, preload the library too"
for version in 28 130000 140000; do
    replay FAKE_CUPTI_VERSION=$version
    is "version $version is left alone" "$status $(tail -1 "$tmp/out") $(sql "SELECT detail LIKE
        '%libcupti.so.13 is version $version, needed is 130001 to 139999;%' FROM gaps")" "0 callbacks 0 1"
done
replay PROBE_CUPTI=off
is "off: nothing is subscribed" "$status $(tail -1 "$tmp/out")" "0 callbacks 0"
done_testing
