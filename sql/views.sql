-- The views that people query. Every one works in the stock sqlite3 shell (3.38 or later) and in
-- Python's sqlite3, without an extension. Columns ending in _a and _b belong to arm A, the one that
-- was declared first, and to arm B.

-- Every recorded top-k entry, best first.
CREATE VIEW IF NOT EXISTS topk AS
SELECT l.row_id AS row_id, j.key + 1 AS rank, j.value ->> 0 AS token,
       CAST(j.value ->> 1 AS REAL) AS logit
FROM logits AS l, json_each(l.topk) AS j;

-- Differences against a row of the same context: at token, this row's logit, exact; the base row's; and
-- logit - base_logit. bound 1: base_logit is the most that it can be, delta the least. base_run_uuid:
-- base_row_id is a row of that run in another file; NULL: it is one of this file.
CREATE VIEW IF NOT EXISTS deltas AS
SELECT d.row_id AS row_id, d.base_row_id AS base_row_id, j.value ->> 0 AS token,
       (j.value ->> 1) / d.scale AS logit, (j.value ->> 2) / d.scale AS base_logit,
       ((j.value ->> 1) - (j.value ->> 2)) / d.scale AS delta, coalesce(j.value ->> 3, 0) AS bound,
       (SELECT f.base_run_uuid FROM logits AS l JOIN forwards AS f ON f.forward_id = l.forward_id
        WHERE l.row_id = d.row_id) AS base_run_uuid
FROM delta_lists AS d, json_each(d.list) AS j;

-- Margins of every arm, each with its rank among the arm's own: 1 is the smallest, equal margins
-- share a rank. percentile: percent of the arm's margins that are at most this one.
CREATE VIEW IF NOT EXISTS margins AS
SELECT l.row_id AS row_id, a.run_id AS run_id, l.arm_id AS arm_id, a.label AS arm,
       l.seq_id AS seq_id, l.pos AS pos, l.top1 AS top1, l.top2 AS top2, l.margin AS margin,
       rank() OVER by_margin AS rank,
       100.0 * cume_dist() OVER by_margin AS percentile
FROM logits AS l
LEFT JOIN arms AS a ON a.arm_id = l.arm_id
WHERE l.margin IS NOT NULL
WINDOW by_margin AS (PARTITION BY l.arm_id ORDER BY l.margin);

-- Which rows may be compared: two arms, of one run or of two, that have seen the same tokens. Every
-- row of arm B is matched with the first row that arm A recorded for its context, so that repeated
-- prompts do not multiply. The index logits_context alone answers it: counting ten million rows
-- takes seconds.
CREATE VIEW IF NOT EXISTS matches AS
SELECT a.row_id AS row_a, b.row_id AS row_b, a.arm_id AS arm_id_a, b.arm_id AS arm_id_b,
       b.seq_id AS seq_id, b.pos AS pos, b.context_hash AS context_hash,
       a.top1 AS top1_a, a.top2 AS top2_a, a.margin AS margin_a,
       b.top1 AS top1_b, b.top2 AS top2_b, b.margin AS margin_b,
       a.top1 IS NOT b.top1 AS flip
FROM logits AS a
JOIN arms AS aa ON aa.arm_id = a.arm_id
JOIN logits AS b ON b.context_hash = a.context_hash AND b.pos = a.pos AND b.arm_id > aa.arm_id
WHERE NOT EXISTS (
    SELECT 1 FROM logits AS e
    WHERE e.context_hash = a.context_hash AND e.pos = a.pos AND e.arm_id = a.arm_id
      AND e.row_id < a.row_id);

-- What both sides know about the ids of a match: every id of either list. A logit that its side did
-- not record is replaced by the last one of its list, and bound says on which side ('a' or 'b'): the
-- true logit is at most that. bound is NULL where both are exact.
CREATE VIEW IF NOT EXISTS pair_ids AS
SELECT row_a, row_b, token, logit AS logit_a, coalesce(other, last) AS logit_b,
       CASE WHEN other IS NULL THEN 'b' END AS bound
FROM (
    SELECT m.row_a, m.row_b, j.value ->> 0 AS token, CAST(j.value ->> 1 AS REAL) AS logit,
           coalesce((SELECT t.logit FROM topk AS t
                     WHERE t.row_id = m.row_b AND t.token = j.value ->> 0),
                    (SELECT d.logit FROM deltas AS d
                     WHERE d.row_id = m.row_b AND d.token = j.value ->> 0)) AS other,
           (SELECT CAST(b.topk ->> '$[#-1][1]' AS REAL) FROM logits AS b WHERE b.row_id = m.row_b) AS last
    FROM matches AS m JOIN logits AS a ON a.row_id = m.row_a, json_each(a.topk) AS j)
UNION ALL
SELECT row_a, row_b, token, coalesce(other, last), logit, CASE WHEN other IS NULL THEN 'a' END
FROM (
    SELECT m.row_a, m.row_b, j.value ->> 0 AS token, CAST(j.value ->> 1 AS REAL) AS logit,
           (SELECT d.logit FROM deltas AS d
            WHERE d.row_id = m.row_a AND d.token = j.value ->> 0) AS other,
           (SELECT CAST(a.topk ->> '$[#-1][1]' AS REAL) FROM logits AS a WHERE a.row_id = m.row_a) AS last
    FROM matches AS m JOIN logits AS b ON b.row_id = m.row_b, json_each(b.topk) AS j
    WHERE NOT EXISTS (SELECT 1 FROM topk AS t
                      WHERE t.row_id = m.row_a AND t.token = j.value ->> 0));

-- Every comparable pair of rows. With i = top1_a and v = the contender (top1_b at a flip, otherwise
-- top2_a): contrast = (logit_b - logit_a at v) - (logit_b - logit_a at i), how far arm B moved v
-- against i; B prefers v exactly when that exceeds A's margin between them. delta: the largest
-- |logit_b - logit_a| over both arms' top 2. max_delta: the same over every id known on both sides.
-- bounded: how many contending logits were missing from a list and are replaced by that list's last,
-- so that delta, and at a flip contrast, are at least what is shown. A logit in a list is written so
-- that it reads back as the same float, which as a double it is not: columns come first, so that
-- rows that are equal to the bit have contrast and delta 0.
CREATE VIEW IF NOT EXISTS pairs AS
WITH contending AS (
    SELECT m.*, a.top1_logit AS a_a1, a.top2_logit AS a_a2, b.top1_logit AS b_b1,
           b.top2_logit AS b_b2, a.topk AS topk_a, b.topk AS topk_b,
           coalesce(CASE m.top1_b WHEN m.top1_a THEN a.top1_logit WHEN m.top2_a THEN a.top2_logit END,
                    (SELECT d.logit FROM deltas AS d WHERE d.row_id = m.row_a AND d.token = m.top1_b),
                    (SELECT j.value ->> 1 FROM json_each(a.topk) AS j WHERE j.value ->> 0 = m.top1_b))
               AS a_b1,
           coalesce(CASE m.top2_b WHEN m.top1_a THEN a.top1_logit WHEN m.top2_a THEN a.top2_logit END,
                    (SELECT d.logit FROM deltas AS d WHERE d.row_id = m.row_a AND d.token = m.top2_b),
                    (SELECT j.value ->> 1 FROM json_each(a.topk) AS j WHERE j.value ->> 0 = m.top2_b))
               AS a_b2,
           coalesce(CASE m.top1_a WHEN m.top1_b THEN b.top1_logit WHEN m.top2_b THEN b.top2_logit END,
                    (SELECT d.logit FROM deltas AS d WHERE d.row_id = m.row_b AND d.token = m.top1_a),
                    (SELECT j.value ->> 1 FROM json_each(b.topk) AS j WHERE j.value ->> 0 = m.top1_a))
               AS b_a1,
           coalesce(CASE m.top2_a WHEN m.top1_b THEN b.top1_logit WHEN m.top2_b THEN b.top2_logit END,
                    (SELECT d.logit FROM deltas AS d WHERE d.row_id = m.row_b AND d.token = m.top2_a),
                    (SELECT j.value ->> 1 FROM json_each(b.topk) AS j WHERE j.value ->> 0 = m.top2_a))
               AS b_a2,
           a.topk ->> '$[#-1][1]' AS last_a, b.topk ->> '$[#-1][1]' AS last_b
    FROM matches AS m
    CROSS JOIN logits AS a ON a.row_id = m.row_a
    CROSS JOIN logits AS b ON b.row_id = m.row_b
)
SELECT row_a, row_b, arm_id_a, arm_id_b, seq_id, pos, context_hash,
       top1_a, top2_a, margin_a, top1_b, top2_b, margin_b, flip,
       CASE WHEN flip THEN (b_b1 - coalesce(a_b1, last_a)) - (coalesce(b_a1, last_b) - a_a1)
            ELSE (coalesce(b_a2, last_b) - a_a2) - (b_b1 - a_a1) END AS contrast,
       max(coalesce(abs(b_a1 - a_a1), a_a1 - last_b, 0.0),
           coalesce(abs(b_a2 - a_a2), a_a2 - last_b, 0.0),
           coalesce(abs(b_b1 - a_b1), b_b1 - last_a, 0.0),
           coalesce(abs(b_b2 - a_b2), b_b2 - last_a, 0.0)) AS delta,
       coalesce((SELECT max(abs(d.delta)) FROM deltas AS d
                 WHERE d.row_id = row_b AND d.base_row_id = row_a AND d.bound = 0
                   AND d.base_run_uuid IS NULL),
                (SELECT max(abs(d.delta)) FROM deltas AS d
                 WHERE d.row_id = row_a AND d.base_row_id = row_b AND d.bound = 0
                   AND d.base_run_uuid IS NULL),
                (SELECT max(d) FROM (
                    SELECT abs(sum(x)) AS d FROM (
                        SELECT j.value ->> 0 AS token, 0.0 - (j.value ->> 1) AS x
                        FROM json_each(topk_a) AS j
                        UNION ALL
                        SELECT j.value ->> 0, j.value ->> 1 FROM json_each(topk_b) AS j)
                    GROUP BY token HAVING count(*) = 2))) AS max_delta,
       (top1_b IS NOT NULL AND a_b1 IS NULL) + (top2_b IS NOT NULL AND a_b2 IS NULL)
           + (top1_a IS NOT NULL AND b_a1 IS NULL) + (top2_a IS NOT NULL AND b_a2 IS NULL) AS bounded
FROM contending;

-- Positions at which the two arms choose different tokens, with the tokens' texts where known.
CREATE VIEW IF NOT EXISTS flips AS
SELECT ra.run_id AS run_a, aa.label AS arm_a, rb.run_id AS run_b, ab.label AS arm_b,
       p.seq_id AS seq_id, p.pos AS pos, p.top1_a AS top1_a, CAST(va.text AS TEXT) AS text_a,
       p.margin_a AS margin_a, p.top1_b AS top1_b, CAST(vb.text AS TEXT) AS text_b,
       p.margin_b AS margin_b, p.contrast AS contrast, p.delta AS delta, p.bounded AS bounded,
       p.row_a AS row_a, p.row_b AS row_b, p.arm_id_a AS arm_id_a, p.arm_id_b AS arm_id_b
FROM pairs AS p
JOIN arms AS aa ON aa.arm_id = p.arm_id_a
JOIN arms AS ab ON ab.arm_id = p.arm_id_b
JOIN runs AS ra ON ra.run_id = aa.run_id
JOIN runs AS rb ON rb.run_id = ab.run_id
LEFT JOIN vocab AS va ON va.model_hash = coalesce(ra.model_hash, '') AND va.token = p.top1_a
LEFT JOIN vocab AS vb ON vb.model_hash = coalesce(rb.model_hash, '') AND vb.token = p.top1_b
WHERE p.flip;

-- How often two arms agree.
CREATE VIEW IF NOT EXISTS agreement AS
SELECT aa.run_id AS run_a, aa.label AS arm_a, ab.run_id AS run_b, ab.label AS arm_b,
       m.arm_id_a AS arm_id_a, m.arm_id_b AS arm_id_b, count(*) AS n,
       count(DISTINCT m.seq_id) AS n_seqs, sum(m.flip) AS n_flips,
       1.0 - 1.0 * sum(m.flip) / count(*) AS agreement, min(m.margin_a) AS min_margin_a,
       min(m.margin_b) AS min_margin_b
FROM matches AS m
JOIN arms AS aa ON aa.arm_id = m.arm_id_a
JOIN arms AS ab ON ab.arm_id = m.arm_id_b
GROUP BY m.arm_id_a, m.arm_id_b;

-- The kernels of each forward, in launch order.
CREATE VIEW IF NOT EXISTS forward_kernels AS
SELECT f.forward_id AS forward_id, f.run_id AS run_id, f.arm_id AS arm_id, i.ord AS ord,
       i.label AS label, k.name AS kernel, c.grid_x AS grid_x, c.grid_y AS grid_y,
       c.grid_z AS grid_z, c.block_x AS block_x, c.block_y AS block_y, c.block_z AS block_z,
       c.dynamic_smem_bytes AS dynamic_smem_bytes, k.static_smem_bytes AS static_smem_bytes,
       k.registers AS registers, k.code_hash AS code_hash, c.config_id AS config_id,
       k.kernel_id AS kernel_id
FROM forwards AS f
JOIN kernel_list_items AS i ON i.kernel_list_id = f.kernel_list_id
JOIN launch_configs AS c ON c.config_id = i.config_id
JOIN kernels AS k ON k.kernel_id = c.kernel_id;

-- How often each arm launched each configuration. Lists are counted once and multiplied.
CREATE VIEW IF NOT EXISTS kernel_usage AS
WITH lists(run_id, arm_id, kernel_list_id, n_forwards) AS (
    SELECT run_id, arm_id, kernel_list_id, count(*) FROM forwards
    WHERE kernel_list_id IS NOT NULL GROUP BY run_id, arm_id, kernel_list_id
), items(kernel_list_id, config_id, n) AS (
    SELECT kernel_list_id, config_id, count(*) FROM kernel_list_items
    GROUP BY kernel_list_id, config_id
)
SELECT l.run_id AS run_id, l.arm_id AS arm_id, a.label AS arm, k.name AS kernel,
       c.grid_x AS grid_x, c.grid_y AS grid_y, c.grid_z AS grid_z, c.block_x AS block_x,
       c.block_y AS block_y, c.block_z AS block_z, c.dynamic_smem_bytes AS dynamic_smem_bytes,
       k.static_smem_bytes AS static_smem_bytes, k.registers AS registers,
       k.code_hash AS code_hash, c.config_id AS config_id, sum(l.n_forwards) AS n_forwards,
       sum(l.n_forwards * i.n) AS n_launches
FROM lists AS l
JOIN items AS i ON i.kernel_list_id = l.kernel_list_id
JOIN launch_configs AS c ON c.config_id = i.config_id
JOIN kernels AS k ON k.kernel_id = c.kernel_id
LEFT JOIN arms AS a ON a.arm_id = l.arm_id
GROUP BY l.run_id, l.arm_id, c.config_id;

-- Names for the view below, as Nsight Systems keeps them.
CREATE VIEW IF NOT EXISTS StringIds AS
SELECT kernel_id AS id, name AS value FROM kernels;

-- Launches under Nsight Systems' column names, so that queries written for its exports run here.
-- What was not recorded is NULL: there are no start and end times, and none are made up. All three
-- names are the mangled one.
CREATE VIEW IF NOT EXISTS CUPTI_ACTIVITY_KIND_KERNEL AS
SELECT NULL AS start, NULL AS "end", NULL AS deviceId, NULL AS contextId, NULL AS greenContextId,
       NULL AS streamId, f.forward_id AS correlationId, r.pid << 24 AS globalPid,
       k.kernel_id AS demangledName, k.kernel_id AS shortName, k.kernel_id AS mangledName,
       NULL AS launchType, NULL AS cacheConfig, k.registers AS registersPerThread,
       c.grid_x AS gridX, c.grid_y AS gridY, c.grid_z AS gridZ, c.block_x AS blockX,
       c.block_y AS blockY, c.block_z AS blockZ, k.static_smem_bytes AS staticSharedMemory,
       c.dynamic_smem_bytes AS dynamicSharedMemory, k.stack_bytes AS localMemoryPerThread,
       NULL AS localMemoryTotal, NULL AS gridId, NULL AS sharedMemoryExecuted,
       NULL AS graphNodeId, NULL AS sharedMemoryLimitConfig, c.cluster_x AS clusterX,
       c.cluster_y AS clusterY, c.cluster_z AS clusterZ
FROM forwards AS f
JOIN runs AS r ON r.run_id = f.run_id
JOIN kernel_list_items AS i ON i.kernel_list_id = f.kernel_list_id
JOIN launch_configs AS c ON c.config_id = i.config_id
JOIN kernels AS k ON k.kernel_id = c.kernel_id
ORDER BY f.forward_id, i.ord;
