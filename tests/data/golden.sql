-- A small record whose every figure can be worked out by hand, for the tests of views, queries and
-- reports. Apply after sql/schema.sql. Vocabulary of 8, lists of 3.
-- Run 1: prefill (arm 1) against decode (arm 2) over six positions. Run 2: the same prompt decoded
-- again (arm 3), bit-equal while the contexts are, with one context recorded twice; and arm 4.
INSERT INTO meta VALUES ('schema_version', '1'), ('run_uuid', '11111111111111111111111111111111');
INSERT INTO runs(run_id, uuid, host, pid, exe, argv, engine, model_path, model_hash, n_vocab,
                 probe_version, started_ns, ended_ns, state) VALUES
    (1, '11111111111111111111111111111111', 'golden', 100, '/usr/bin/engine', '["engine","gate"]',
     'engine 1', 'golden.gguf', 'aa', 8, '0.1.0', 1000000000000000000, 1000000002500000000, 'closed'),
    (2, '22222222222222222222222222222222', 'golden', 101, '/usr/bin/engine', '["engine","run"]',
     'engine 1', 'golden.gguf', 'aa', 8, '0.1.0', 1000000010000000000, NULL, 'recovered');
INSERT INTO settings VALUES
    (1, 'NEARTIE_FAST', '0', 'default'), (1, 'NEARTIE_FA_SPLIT', '8', 'env'),
    (2, 'NEARTIE_FAST', '1', 'env'), (2, 'NEARTIE_FA_SPLIT', '8', 'env'),
    (2, 'NEARTIE_CHUNK', '64', 'env');
INSERT INTO arms VALUES
    (1, 1, 'prefill', 'prefill', 'reassoc'), (2, 1, 'decode', 'decode', 'reassoc'),
    (3, 2, 'decode', 'decode', 'reassoc'), (4, 2, 'verify', 'verify', NULL);
INSERT INTO sequences VALUES (1, 1, 0, 'prompt', NULL), (2, 2, 0, 'prompt', NULL), (3, 2, 1, NULL, 2);

INSERT INTO modules VALUES (1, '5e', 4096, 90, NULL, 1000000000000000000);
INSERT INTO kernels VALUES
    (1, '_Z4gemmPf', 1, 'c1', 'd1', 128, 1024, 16, 256, 'exact'),
    (2, '_Z4gemvPf', 1, 'c2', 'd1', 40, 0, 0, 128, 'exact');
INSERT INTO launch_configs VALUES
    (1, 1, 8, 1, 1, 256, 1, 1, 2048, NULL, NULL, NULL, NULL),
    (2, 2, 64, 2, 1, 128, 1, 1, 0, NULL, NULL, NULL, NULL);
INSERT INTO kernel_lists VALUES (1, 'e1', 3), (2, 'e2', 2);
INSERT INTO kernel_list_items VALUES
    (1, 0, 1, 'qkv'), (1, 1, 1, 'ffn'), (1, 2, 2, 'head'), (2, 0, 2, 'qkv'), (2, 1, 2, 'head');

INSERT INTO forwards(forward_id, run_id, arm_id, started_ns, duration_ns, n_tokens, n_seqs, n_past,
                     ubatch_index, n_ubatch, kernel_list_id, thread) VALUES
    (1, 1, 1, 1000000000100000000, 6000, 6, 1, 0, 0, 1, 1, 100),
    (2, 1, 2, 1000000000200000000, 1000, 1, 1, 0, 0, 1, 2, 100),
    (3, 1, 2, 1000000000300000000, 1000, 1, 1, 1, 0, 1, 2, 100),
    (4, 1, 2, 1000000000400000000, 1000, 1, 1, 2, 0, 1, 2, 100),
    (5, 1, 2, 1000000000500000000, 1000, 1, 1, 3, 0, 1, 2, 100),
    (6, 1, 2, 1000000000600000000, 1000, 1, 1, 4, 0, 1, 2, 100),
    (7, 1, 2, 1000000000700000000, 1000, 1, 1, 5, 0, 1, NULL, 100),
    (8, 2, 3, 1000000010100000000, 1000, 2, 2, 0, 0, 1, 2, 101),
    (9, 2, 3, 1000000010200000000, 1000, 1, 1, 1, 0, 1, 2, 101),
    (10, 2, 3, 1000000010300000000, 1000, 1, 1, 2, 0, 1, 2, 101),
    (11, 2, 4, 1000000010400000000, NULL, 1, 1, 0, 0, 1, NULL, 101);
INSERT INTO logits(row_id, forward_id, arm_id, seq_id, pos, batch_row, context_hash, input_token,
                   emitted_token, dtype, top1, top1_logit, top2, top2_logit, margin, lse, n_nan,
                   n_posinf, n_neginf, first_bad, topk) VALUES
    (1, 1, 1, 1, 0, 0, '00000000000000c0', 7, NULL, 'f32', 1, 5, 2, 4, 1, 5.5, 0, 0, 0, NULL, '[[1,5],[2,4],[3,3]]'),
    (2, 1, 1, 1, 1, 1, '00000000000000c1', 1, NULL, 'f32', 4, 2, 5, 1.75, 0.25, 2.75, 0, 0, 0, NULL, '[[4,2],[5,1.75],[1,0]]'),
    (3, 1, 1, 1, 2, 2, '00000000000000c2', 5, NULL, 'f32', 1, 3, 2, 3, 0, 3.75, 0, 0, 0, NULL, '[[1,3],[2,3],[5,1]]'),
    (4, 1, 1, 1, 3, 3, '00000000000000c3', 1, NULL, 'f32', 6, 4, 7, 3.5, 0.5, 4.75, 0, 0, 0, NULL, '[[6,4],[7,3.5],[1,3]]'),
    (5, 1, 1, 1, 4, 4, '00000000000000c4', 2, NULL, 'f32', 1, 1, 2, 0.5, 0.5, 2, 0, 0, 0, NULL, '[[1,1],[2,0.5],[4,0]]'),
    (6, 1, 1, 1, 5, 5, '00000000000000c5', 1, NULL, 'f32', 3, 2, 4, 1.5, 0.5, 2.75, 0, 0, 0, NULL, '[[3,2],[4,1.5],[1,1]]'),
    (7, 2, 2, 1, 0, 0, '00000000000000c0', 7, 1, 'f32', 1, 5.25, 2, 4, 1.25, 5.5, 0, 0, 0, NULL, '[[1,5.25],[2,4],[3,2.5]]'),
    (8, 3, 2, 1, 1, 0, '00000000000000c1', 1, 5, 'f32', 5, 2.25, 4, 2, 0.25, 2.75, 0, 0, 0, NULL, '[[5,2.25],[4,2],[1,0.5]]'),
    (9, 4, 2, 1, 2, 0, '00000000000000c2', 5, 1, 'f32', 1, 3, 2, 2.5, 0.5, 3.75, 0, 0, 0, NULL, '[[1,3],[2,2.5],[5,1]]'),
    (10, 5, 2, 1, 3, 0, '00000000000000c3', 1, 2, 'f32', 2, 4.5, 6, 4.25, 0.25, 5, 0, 0, 0, NULL, '[[2,4.5],[6,4.25],[7,3]]'),
    (11, 6, 2, 1, 4, 0, '00000000000000c4', 2, 1, 'f32', 1, 1, 2, 0.5, 0.5, 2, 1, 0, 0, 3, '[[1,1],[2,0.5],[4,0]]'),
    (12, 7, 2, 1, 5, 0, '00000000000000c5', 1, 3, 'f32', 3, 2.125, 4, 1.5, 0.625, 2.75, 0, 0, 0, NULL, '[[3,2.125],[4,1.5],[1,1]]'),
    (13, 8, 3, 2, 0, 0, '00000000000000c0', 7, 1, 'f32', 1, 5.25, 2, 4, 1.25, 5.5, 0, 0, 0, NULL, '[[1,5.25],[2,4],[3,2.5]]'),
    (14, 8, 3, 3, 0, 1, '00000000000000c0', 7, 1, 'f32', 1, 5.25, 2, 4, 1.25, 5.5, 0, 0, 0, NULL, '[[1,5.25],[2,4],[3,2.5]]'),
    (15, 9, 3, 2, 1, 0, '00000000000000c1', 1, 5, 'f32', 5, 2.25, 4, 2, 0.25, 2.75, 0, 0, 0, NULL, '[[5,2.25],[4,2],[1,0.5]]'),
    (16, 10, 3, 2, 2, 0, '00000000000000d2', 4, 6, 'f32', 6, 1, 7, 0.5, 0.5, 2, 0, 0, 0, NULL, '[[6,1],[7,0.5],[1,0]]'),
    (17, 11, 4, 2, 0, 0, '00000000000000c0', 7, NULL, 'bf16', 2, 5, 1, 4.5, 0.5, 5.5, 0, 0, 0, NULL, '[[2,5],[1,4.5],[3,2.5]]');
-- Position 1: everything is in both lists as well. Position 3: id 1 was read from arm B's row; what
-- arm A had at id 2 is only known to be at most 3.
INSERT INTO delta_lists VALUES
    (8, 2, 4, '[[1,2,0],[4,8,8],[5,9,7]]'),
    (10, 4, 4, '[[1,8,12],[2,18,12,1],[6,17,16],[7,12,14]]');

INSERT INTO gaps VALUES
    (1, 1, NULL, 'rows_dropped', 3, NULL), (2, 2, NULL, 'cupti', 1, 'libcupti.so.13: not found');
-- Id 3's text would clear a terminal, id 4's would open a tag in a page; id 7's is not UTF-8.
INSERT INTO vocab VALUES
    ('aa', 1, ' the'), ('aa', 2, ' a'), ('aa', 3, char(27) || '[2J'), ('aa', 4, '<b>'),
    ('aa', 5, ' cat'), ('aa', 6, ' sat'), ('aa', 7, x'ff');
INSERT INTO calibrations VALUES (1, 'golden', 'reassoc', 'decode twice', 100, 0.05, '[[50,0.03]]');
