-- Everything of another database, attached as src, is added to this one. Ids follow on those that
-- are here; what is addressed by its content (modules, kernels, kernel lists) is shared.
CREATE TEMP TABLE IF NOT EXISTS merged(uuid TEXT PRIMARY KEY, row INTEGER); -- what row ids of a run grew by
DROP TABLE IF EXISTS temp.base;
CREATE TEMP TABLE base AS SELECT
    (SELECT coalesce(max(run_id), 0) FROM main.runs) AS run,
    (SELECT coalesce(max(arm_id), 0) FROM main.arms) AS arm,
    (SELECT coalesce(max(seq_id), 0) FROM main.sequences) AS seq,
    (SELECT coalesce(max(forward_id), 0) FROM main.forwards) AS forward,
    (SELECT coalesce(max(row_id), 0) FROM main.logits) AS row,
    (SELECT coalesce(max(gap_id), 0) FROM main.gaps) AS gap,
    (SELECT coalesce(max(graph_exec_id), 0) FROM main.graph_execs) AS graph;
INSERT INTO temp.merged SELECT uuid, (SELECT row FROM temp.base) FROM src.runs;

INSERT OR IGNORE INTO main.meta SELECT 'run_uuid', value FROM src.meta WHERE key = 'run_uuid';
INSERT INTO main.runs SELECT r.run_id + b.run, r.uuid, r.host, r.pid, r.exe, r.exe_build_id, r.argv,
    r.engine, r.model_path, r.model_hash, r.n_vocab, r.gpu_name, r.sm, r.sm_count,
    r.driver_version, r.cuda_version, r.cupti_version, r.probe_version, r.started_ns, r.ended_ns,
    r.state
FROM src.runs AS r, temp.base AS b ORDER BY r.run_id;
INSERT INTO main.settings SELECT s.run_id + b.run, s.name, s.value, s.source
FROM src.settings AS s, temp.base AS b;
INSERT INTO main.arms SELECT a.arm_id + b.arm, a.run_id + b.run, a.label, a.phase, a.class
FROM src.arms AS a, temp.base AS b ORDER BY a.arm_id;
INSERT INTO main.sequences
SELECT s.seq_id + b.seq, s.run_id + b.run, s.seq, s.label, s.parent_seq_id + b.seq
FROM src.sequences AS s, temp.base AS b ORDER BY s.seq_id;

INSERT OR IGNORE INTO main.modules(hash, size_bytes, arch, cupti_crc, first_seen_ns)
SELECT hash, size_bytes, arch, cupti_crc, first_seen_ns FROM src.modules ORDER BY module_id;
DROP TABLE IF EXISTS temp.module_of;
CREATE TEMP TABLE module_of AS SELECT s.module_id AS old, m.module_id AS new
FROM src.modules AS s JOIN main.modules AS m USING (hash);
CREATE UNIQUE INDEX temp.module_of_old ON module_of(old);

-- A kernel whose code is not known is the same only if all that is known of it is.
DROP TABLE IF EXISTS temp.kernel_in;
CREATE TEMP TABLE kernel_in AS SELECT k.*, o.new AS module
FROM src.kernels AS k LEFT JOIN temp.module_of AS o ON o.old = k.module_id;
INSERT INTO main.kernels(name, module_id, code_hash, const_hash, registers, static_smem_bytes,
    stack_bytes, max_threads, resolve)
SELECT name, module, code_hash, const_hash, registers, static_smem_bytes, stack_bytes, max_threads,
    resolve
FROM temp.kernel_in AS k
WHERE NOT EXISTS (SELECT 1 FROM main.kernels AS m
    WHERE m.name = k.name AND m.code_hash IS k.code_hash AND m.module_id IS k.module
      AND (m.code_hash IS NOT NULL AND m.module_id IS NOT NULL
        OR m.const_hash IS k.const_hash AND m.registers IS k.registers
        AND m.static_smem_bytes IS k.static_smem_bytes AND m.stack_bytes IS k.stack_bytes
        AND m.max_threads IS k.max_threads AND m.resolve IS k.resolve))
ORDER BY kernel_id;
DROP TABLE IF EXISTS temp.kernel_of;
CREATE TEMP TABLE kernel_of AS SELECT k.kernel_id AS old, min(m.kernel_id) AS new
FROM temp.kernel_in AS k JOIN main.kernels AS m
  ON m.name = k.name AND m.code_hash IS k.code_hash AND m.module_id IS k.module
    AND (m.code_hash IS NOT NULL AND m.module_id IS NOT NULL
      OR m.const_hash IS k.const_hash AND m.registers IS k.registers
      AND m.static_smem_bytes IS k.static_smem_bytes AND m.stack_bytes IS k.stack_bytes
      AND m.max_threads IS k.max_threads AND m.resolve IS k.resolve)
GROUP BY k.kernel_id;
CREATE UNIQUE INDEX temp.kernel_of_old ON kernel_of(old);

DROP TABLE IF EXISTS temp.config_in;
CREATE TEMP TABLE config_in AS SELECT c.*, o.new AS kernel
FROM src.launch_configs AS c JOIN temp.kernel_of AS o ON o.old = c.kernel_id;
INSERT INTO main.launch_configs(kernel_id, grid_x, grid_y, grid_z, block_x, block_y, block_z,
    dynamic_smem_bytes, cluster_x, cluster_y, cluster_z, attributes)
SELECT kernel, grid_x, grid_y, grid_z, block_x, block_y, block_z, dynamic_smem_bytes, cluster_x,
    cluster_y, cluster_z, attributes
FROM temp.config_in AS c
WHERE NOT EXISTS (SELECT 1 FROM main.launch_configs AS m
    WHERE m.kernel_id = c.kernel AND m.grid_x = c.grid_x AND m.grid_y = c.grid_y
      AND m.grid_z = c.grid_z AND m.block_x = c.block_x AND m.block_y = c.block_y
      AND m.block_z = c.block_z AND m.dynamic_smem_bytes = c.dynamic_smem_bytes
      AND m.cluster_x IS c.cluster_x AND m.cluster_y IS c.cluster_y AND m.cluster_z IS c.cluster_z
      AND m.attributes IS c.attributes)
ORDER BY config_id;
DROP TABLE IF EXISTS temp.config_of;
CREATE TEMP TABLE config_of AS SELECT c.config_id AS old, min(m.config_id) AS new
FROM temp.config_in AS c JOIN main.launch_configs AS m
  ON m.kernel_id = c.kernel AND m.grid_x = c.grid_x AND m.grid_y = c.grid_y
    AND m.grid_z = c.grid_z AND m.block_x = c.block_x AND m.block_y = c.block_y
    AND m.block_z = c.block_z AND m.dynamic_smem_bytes = c.dynamic_smem_bytes
    AND m.cluster_x IS c.cluster_x AND m.cluster_y IS c.cluster_y AND m.cluster_z IS c.cluster_z
    AND m.attributes IS c.attributes
GROUP BY c.config_id;
CREATE UNIQUE INDEX temp.config_of_old ON config_of(old);

DROP TABLE IF EXISTS temp.list_new;
CREATE TEMP TABLE list_new AS SELECT kernel_list_id, hash FROM src.kernel_lists
WHERE hash NOT IN (SELECT hash FROM main.kernel_lists);
INSERT INTO main.kernel_lists(hash, n) SELECT s.hash, s.n
FROM src.kernel_lists AS s JOIN temp.list_new AS l USING (kernel_list_id) ORDER BY kernel_list_id;
INSERT INTO main.kernel_list_items SELECT m.kernel_list_id, i.ord, o.new, i.label
FROM temp.list_new AS l
JOIN main.kernel_lists AS m ON m.hash = l.hash
JOIN src.kernel_list_items AS i ON i.kernel_list_id = l.kernel_list_id
JOIN temp.config_of AS o ON o.old = i.config_id;
DROP TABLE IF EXISTS temp.list_of;
CREATE TEMP TABLE list_of AS SELECT s.kernel_list_id AS old, m.kernel_list_id AS new
FROM src.kernel_lists AS s JOIN main.kernel_lists AS m USING (hash);
CREATE UNIQUE INDEX temp.list_of_old ON list_of(old);
INSERT INTO main.list_numbers SELECT n.run_id + b.run, n.number, o.new
FROM temp.base AS b, src.list_numbers AS n JOIN temp.list_of AS o ON o.old = n.kernel_list_id;
INSERT INTO main.graph_execs
SELECT g.graph_exec_id + b.graph, g.run_id + b.run, o.new, g.label, g.version, g.created_ns
FROM temp.base AS b, src.graph_execs AS g LEFT JOIN temp.list_of AS o ON o.old = g.kernel_list_id
ORDER BY g.graph_exec_id;

INSERT INTO main.forwards
SELECT f.forward_id + b.forward, f.run_id + b.run, f.arm_id + b.arm, f.started_ns, f.duration_ns,
    f.n_tokens, f.n_seqs, f.n_past, f.ubatch_index, f.n_ubatch, o.new, f.base_run_uuid, f.thread
FROM temp.base AS b CROSS JOIN src.forwards AS f
LEFT JOIN temp.list_of AS o ON o.old = f.kernel_list_id
ORDER BY f.forward_id;
INSERT INTO main.logits
SELECT l.row_id + b.row, l.forward_id + b.forward, l.arm_id + b.arm, l.seq_id + b.seq, l.pos,
    l.batch_row, l.context_hash, l.input_token, l.emitted_token, l.dtype, l.top1, l.top1_logit,
    l.top2, l.top2_logit, l.margin, l.lse, l.n_nan, l.n_posinf, l.n_neginf, l.first_bad, l.topk
FROM temp.base AS b CROSS JOIN src.logits AS l ORDER BY l.row_id;
-- A base row in another file keeps its number there.
INSERT INTO main.delta_lists
SELECT d.row_id + b.row, d.base_row_id + CASE WHEN f.base_run_uuid IS NULL THEN b.row ELSE 0 END,
    d.scale, d.list
FROM temp.base AS b CROSS JOIN src.delta_lists AS d
LEFT JOIN src.logits AS l ON l.row_id = d.row_id
LEFT JOIN src.forwards AS f ON f.forward_id = l.forward_id
ORDER BY d.row_id;
INSERT INTO main.gaps
SELECT g.gap_id + b.gap, g.run_id + b.run, g.forward_id + b.forward, g.kind, g.count, g.detail
FROM src.gaps AS g, temp.base AS b ORDER BY g.gap_id;
-- Of two texts for one token id the first stays; every run of the model says how many it has otherwise.
DROP TABLE IF EXISTS temp.other_texts;
CREATE TEMP TABLE other_texts AS SELECT s.model_hash AS model_hash, count(*) AS n
FROM src.vocab AS s JOIN main.vocab AS m USING (model_hash, token)
WHERE s.text IS NOT m.text GROUP BY s.model_hash;
INSERT INTO main.gaps(run_id, kind, count, detail)
SELECT r.run_id + b.run, 'texts_differ', o.n, 'a file before it has other texts for these token ids'
FROM temp.base AS b, temp.other_texts AS o
JOIN src.runs AS r ON coalesce(r.model_hash, '') = o.model_hash ORDER BY r.run_id;
INSERT OR IGNORE INTO main.vocab SELECT * FROM src.vocab;
-- Of calibrations with one name, those that differ are numbered.
INSERT INTO main.calibrations(label, class, control, n, scale, quantiles)
SELECT CASE WHEN s.label IN (SELECT label FROM main.calibrations)
            THEN s.label || '-' || (SELECT 1 + count(*) FROM main.calibrations) ELSE s.label END,
    s.class, s.control, s.n, s.scale, s.quantiles
FROM src.calibrations AS s
WHERE NOT EXISTS (SELECT 1 FROM main.calibrations AS m
    WHERE m.label = s.label AND m.class IS s.class AND m.control = s.control AND m.n = s.n
      AND m.scale = s.scale AND m.quantiles = s.quantiles)
ORDER BY s.calibration_id;
