"""Compare what a database says was launched with the counts of gpu_audit.

usage: gpu_kernels.py RUN.db AUDIT.tsv   (TAP lines on stdout)

Every kernel of the database's lists, by name, grid, block and shared memory, has the count of the
activity records; registers and static shared memory are equal, and those of every kernel are what
cuFuncGetAttribute gives; and what is left of the records are
the launches that the database counts as outside of all forwards, and the probe's own.
"""
import collections
import sqlite3
import sys

USAGE = """
SELECT kernel, grid_x, grid_y, grid_z, block_x, block_y, block_z, dynamic_smem_bytes,
       static_smem_bytes, registers, sum(n_launches) FROM kernel_usage GROUP BY 1,2,3,4,5,6,7,8"""


def ok(passed, name, notes=()):
    print(f"{'ok' if passed else 'not ok'} - {name}")
    for note in list(notes)[:8]:
        print(f"#   {note}")
    return passed


def main():
    db = sqlite3.connect(sys.argv[1])
    said, facts = collections.Counter(), {}
    for row in db.execute(USAGE):
        said[row[:8]] += row[10]
        facts[row[:8]] = row[8:10]
    ran, truth = collections.Counter(), {}
    for line in open(sys.argv[2], encoding="utf-8"):
        f = line.rstrip("\n").split("\t")
        key = (f[0], *map(int, f[1:8]))
        if f[0].startswith("probe_capture"):
            continue
        ran[key] += int(f[10])
        truth[key] = (int(f[8]), int(f[9]))
    gaps = dict(db.execute("SELECT kind, count FROM gaps"))
    more = [f"{k}: {said[k]} recorded, {ran[k]} ran" for k in said if said[k] > ran[k]]
    left = {k: ran[k] - said[k] for k in ran if ran[k] > said[k]}
    # The records count what is allocated, and that is 16 registers at least.
    bad = [f"{k}: {facts[k]}, truth {truth[k]}" for k in facts
           if k in truth and (facts[k][0], max(facts[k][1] or 0, 16)) != truth[k]]
    asked = collections.defaultdict(set)
    for line in open(sys.argv[2] + ".functions", encoding="utf-8"):
        name, registers, smem = line.rstrip("\n").split("\t")
        asked[name].add((int(registers), int(smem)))
    kernels = db.execute("SELECT name, registers, static_smem_bytes FROM kernels").fetchall()
    unlike = [f"{k}: {r} registers, {s} bytes; cuFuncGetAttribute {asked.get(k)}" for k, r, s in kernels
              if (r, s) not in asked[k]]
    outside = gaps.get("launches_outside", 0)
    good = ok(not more, f"{sum(said.values())} recorded launches of {len(said)} configurations all ran", more)
    good &= ok(sum(left.values()) == outside, f"the other {sum(left.values())} of {sum(ran.values())} are those "
               f"counted as outside ({outside})", [f"{k}: {v} more ran" for k, v in left.items()])
    good &= ok(not bad, f"registers and static shared memory of {len(facts)} are the driver's", bad)
    good &= ok(kernels and not unlike, f"registers and static shared memory of all {len(kernels)} kernels, "
               f"{sum(r < 16 for _, r, _ in kernels if r)} of fewer than 16 registers, are what "
               "cuFuncGetAttribute gives", unlike)
    print("# gaps:", gaps, "resolve:", dict(db.execute("SELECT resolve, count(*) FROM kernels GROUP BY 1")),
          "lists:", db.execute("SELECT count(*) FROM kernel_lists").fetchone()[0],
          "forwards without a list:",
          db.execute("SELECT count(*) FROM forwards WHERE kernel_list_id IS NULL").fetchone()[0], "of",
          db.execute("SELECT count(*) FROM forwards").fetchone()[0])
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
