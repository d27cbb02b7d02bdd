#!/bin/sh
# The kernels of each forward, seen by wrapping the driver: a program on a fake driver, with and
# without the probe, and what the database and the commands say of it.
. "${abs_top_srcdir:?}/tests/testlib.sh"
host=$abs_top_builddir/tests/cuda_host
ln -s "$abs_top_builddir/tests/libfakecuda.so" "$tmp/libcuda.so.1"
image=$data/plain.cubin
cd "$tmp" || exit 99
LD_LIBRARY_PATH=$tmp
export LD_LIBRARY_PATH PROBE_LOG
PROBE_LOG=$tmp/probe.log

sql() { sqlite3 -batch run.db "$1"; }
case $SANITIZE in
no | '') ;;
*)
    skip "kernels are recorded" "the sanitizers' own libraries must stand before dlsym"
    done_testing ;;
esac

"$host" dlsym "$image" >plain.out
for way in dlsym proc; do
    rm -f run.db*
    run env LD_PRELOAD="$probe" "$host" "$way" "$image"
    is "$way: the program ends as it would" "$status" 0
    is "$way: its output is unchanged" "$(grep -v cuInit "$tmp/out")" "$(grep -v cuInit plain.out)"
    is "$way: every launch is there, those of graphs one by one" \
        "$(sql "SELECT kernel, grid_x, block_x, dynamic_smem_bytes, sum(n_launches) FROM kernel_usage
            GROUP BY 1,2,3,4 ORDER BY 1,2")" "other|3|32|64|3
other|5|64|64|6
other|6|64|64|6
plain|2|32|64|3"
    is "$way: in the order of the launches" \
        "$(sql "SELECT group_concat(kernel || grid_x, ' ') FROM (SELECT * FROM forward_kernels
            WHERE forward_id = 2 ORDER BY ord)")" "plain2 other3 other5 other6 other5 other6"
    is "$way: equal forwards share a list; a graph is one more" \
        "$(sql "SELECT count(*), max(n) FROM kernel_lists")" "2|6"
    is "$way: the code is that of the image, found by handle" \
        "$(sql "SELECT name, registers, static_smem_bytes, resolve, length(code_hash), size_bytes, arch
            FROM kernels JOIN modules USING(module_id) ORDER BY 1")" "other|8|0|exact|64|5200|90
plain|8|0|exact|64|5200|90"
    is "$way: the run has the GPU" \
        "$(sql "SELECT gpu_name, sm, sm_count, cuda_version FROM runs")" "Fake GPU 0|90|132|13.1"
    is "$way: it says that nobody marked the forwards" \
        "$(sql "SELECT kind, count FROM gaps")" "forwards_unmarked|3"
done
is "the launches and graph replays are all of the driver's" \
    "$(sql "SELECT sum(n_launches) FROM kernel_usage")" "$(sed -n 's/^launches //p' plain.out)"
is "a graph is listed by itself" "$(sql "SELECT version, n FROM graph_execs
    JOIN kernel_lists USING(kernel_list_id)")" "0|2"

rm -f run.db*
run env LD_PRELOAD="$probe" "$host" proc "$image" forward
is "marked forwards have their lists" \
    "$(sql "SELECT count(*), count(DISTINCT kernel_list_id), max(n_tokens) FROM forwards")" "3|1|1"
is "and there is nothing beside them" "$(sql "SELECT kind FROM gaps")" ""

# The engine has them not recorded for a while.
rm -f run.db*
run env LD_PRELOAD="$probe" "$host" proc "$image" pause
is "paused: the output is unchanged" "$(grep -v cuInit "$tmp/out")" "$(grep -v cuInit plain.out)"
is "paused: the forward has no list, and the others have theirs, with the graph that was made meanwhile" \
    "$(sql "SELECT forward_id, n FROM forwards LEFT JOIN kernel_lists USING(kernel_list_id)" | xargs)" \
    "1|6 2| 3|6"
is "paused: that is counted" "$(sql "SELECT kind, count FROM gaps")" "kernels_paused|1"
rm -f run.db*
run env LD_PRELOAD="$probe" "$host" dlsym "$image" pause_unmarked
is "paused, with forwards that nobody marks: those in between are not made up" \
    "$(sql "SELECT sum(n_launches) FROM kernel_usage; SELECT kind, count FROM gaps" | xargs)" \
    "12 forwards_unmarked|2"
rm -f run.db*
run env LD_PRELOAD="$probe" "$host" proc "$image" forward

# The commands.
is "neartie kernels lists them" "$("$neartie" kernels --format csv run.db | cut -d, -f3-6 | sort)" \
    "kernel,grid,block,registers
other,3x1x1,32x1x1,8
other,5x1x1,64x1x1,8
other,6x1x1,64x1x1,8
plain,2x1x1,32x1x1,8"
is "neartie inspect gives a cubin's kernels the hashes that are recorded" \
    "$("$neartie" inspect --format csv "$image" | sed 1d | cut -d, -f1,7)" \
    "$(sql "SELECT name || ',' || code_hash FROM kernels ORDER BY 1")"

# Off, or the driver refuses: the host runs on.
rm -f run.db*
run env LD_PRELOAD="$probe" PROBE_CUPTI=off "$host" proc "$image" forward
is "off: the output is unchanged" "$(grep -v cuInit "$tmp/out")" "$(grep -v cuInit plain.out)"
is "off: no kernel is recorded" "$(sql "SELECT count(*) FROM kernels")" 0
for name in cuModuleLoadData cuModuleGetFunction cuLaunchKernel cuStreamBeginCapture_v2 \
    cuGraphInstantiateWithFlags cuGraphLaunch cuGraphGetNodes; do
    rm -f run.db*
    FAKE_FAIL=$name "$host" proc "$image" >want 2>&1
    wanted=$?
    run env LD_PRELOAD="$probe" FAKE_FAIL=$name "$host" proc "$image"
    is "$name fails: status and output are the host's" "$status $(cat "$tmp/out")" \
        "$wanted $(cat want)"
done
is "a graph that could not be looked at is a gap, not an empty list" \
    "$(sql "SELECT kind, count FROM gaps WHERE kind = 'graph_unknown'")
$(sql "SELECT count(*) FROM forwards WHERE kernel_list_id IS NOT NULL")" "graph_unknown|6
0"

# Images that are no code.
head -c 3000 "$image" >short
head -c 5200 /dev/urandom >noise
{ head -c 64 "$image"; head -c 5136 /dev/urandom; } >torn
for bad in short noise torn; do
    rm -f run.db*
    run env LD_PRELOAD="$probe" "$host" proc "$bad"
    is "$bad image: the host runs on" "$status" 0
    is "$bad image: kernels are named, their code is not known" \
        "$(sql "SELECT count(*), count(code_hash) FROM kernels WHERE name IN ('plain', 'other')")" "2|0"
done
is "nothing was complained about" "$(cat "$tmp/probe.log" 2>/dev/null)" ""
done_testing
