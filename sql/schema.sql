-- The neartie database, schema version 1: what libprobe.so writes and every reader reads.
-- Conventions: ids are local to the file; *_ns is nanoseconds since the Unix epoch (durations:
-- nanoseconds); *_bytes is bytes; hashes are lower-case hex TEXT; unknown is NULL, never 0.
-- Logits: a REAL column holds the float exactly, infinities too, and NaN as NULL. In the JSON of topk
-- a number has as many digits as make it read back as the same float; JSON has no infinity, so that
-- stands as 9e999 or -9e999, which SQLite and Python read as one. NaN is never in a list.
-- With PROBE_TOKENS=hash every token id is a keyed one, context_hash is keyed, and there is no text.

-- What the file says of itself.
CREATE TABLE meta(
    key   TEXT PRIMARY KEY, -- 'schema_version' (a number as text), 'run_uuid' of the file's first
                            -- run, 'spool:UUID' the progress of a run that is recording
    value TEXT NOT NULL
) WITHOUT ROWID;

-- One process that recorded into this file.
CREATE TABLE runs(
    run_id         INTEGER PRIMARY KEY,
    uuid           TEXT NOT NULL UNIQUE, -- random, 32 hex digits; names the run in any other file
    host           TEXT,                 -- uname's nodename
    pid            INTEGER,              -- process id, in its own pid namespace
    exe            TEXT,                 -- path of the executable
    exe_build_id   TEXT,                 -- GNU build id of the executable, hex
    argv           TEXT,                 -- command line, a JSON array of strings; NULL with PROBE_TOKENS=hash
    engine         TEXT,                 -- name and version as the engine gave it
    model_path     TEXT,                 -- model file as the engine gave it
    model_hash     TEXT,                 -- identity of the weights, hex, as the engine gave it
    n_vocab        INTEGER,              -- columns of a logits row
    gpu_name       TEXT,
    sm             INTEGER,              -- compute capability times 10: 90 for 9.0
    sm_count       INTEGER,              -- multiprocessors
    driver_version TEXT,
    cuda_version   TEXT,
    cupti_version  TEXT,
    probe_version  TEXT NOT NULL,
    started_ns     INTEGER NOT NULL,
    ended_ns       INTEGER,              -- NULL and the process gone: it died
    -- recording: it runs, or it died and no reader has come by since; closed: it ended, or went on in
    -- another file (PROBE_MAX_MB); recovered: it died, and all that it left is in the file
    state          TEXT NOT NULL CHECK (state IN ('recording', 'closed', 'recovered'))
);

-- Every numeric knob in effect.
CREATE TABLE settings(
    run_id INTEGER NOT NULL REFERENCES runs,
    name   TEXT NOT NULL,
    value  TEXT,
    source TEXT NOT NULL CHECK (source IN ('env', 'default', 'api')),
    PRIMARY KEY (run_id, name)
) WITHOUT ROWID;

-- One numeric configuration inside a run.
CREATE TABLE arms(
    arm_id INTEGER PRIMARY KEY,
    run_id INTEGER NOT NULL REFERENCES runs,
    label  TEXT NOT NULL,                -- 'prefill', 'decode', or the engine's own name
    phase  TEXT NOT NULL CHECK (phase IN ('prefill', 'decode', 'verify')),
    class  TEXT,                         -- how it may differ: bitwise, reassoc, precision, weights, engine; or
                                         -- flips: what neartie prune kept of another arm, no sample
    UNIQUE (run_id, label, phase)
);

-- A conversation or prompt.
CREATE TABLE sequences(
    seq_id        INTEGER PRIMARY KEY,
    run_id        INTEGER NOT NULL REFERENCES runs,
    seq           INTEGER NOT NULL,      -- the engine's own number
    label         TEXT,
    parent_seq_id INTEGER REFERENCES sequences,
    UNIQUE (run_id, seq)
);

-- One forward pass.
CREATE TABLE forwards(
    forward_id     INTEGER PRIMARY KEY,
    run_id         INTEGER NOT NULL REFERENCES runs,
    arm_id         INTEGER REFERENCES arms,
    started_ns     INTEGER NOT NULL,
    duration_ns    INTEGER,              -- host time from forward_begin to forward_end
    n_tokens       INTEGER NOT NULL,     -- input tokens, over all sequences
    n_seqs         INTEGER NOT NULL,
    n_past         INTEGER,              -- positions in the cache before, of the first sequence
    ubatch_index   INTEGER NOT NULL,
    n_ubatch       INTEGER NOT NULL,
    kernel_list_id INTEGER REFERENCES kernel_lists,
    base_run_uuid  TEXT,                 -- run of the baseline rows when they are in another file
    thread         INTEGER               -- kernel thread id that called forward_begin
);

-- One row of logits: the prediction that follows position pos.
CREATE TABLE logits(
    row_id        INTEGER PRIMARY KEY,
    forward_id    INTEGER NOT NULL REFERENCES forwards,
    arm_id        INTEGER REFERENCES arms, -- the forward's; here too, so that one index answers joins
    seq_id        INTEGER NOT NULL REFERENCES sequences,
    pos           INTEGER NOT NULL,      -- position of the input token, from 0
    batch_row     INTEGER,               -- row of the batch in which it was computed
    context_hash  TEXT,                  -- 16 hex digits over all tokens up to and including pos; the join key
    input_token   INTEGER,               -- the token at pos
    emitted_token INTEGER,               -- what the sampler chose after this row
    dtype         TEXT NOT NULL CHECK (dtype IN ('f32', 'f16', 'bf16')),
    top1          INTEGER,               -- ties go to the lowest id; NULL: all are NaN or -inf
    top1_logit    REAL,
    top2          INTEGER,
    top2_logit    REAL,
    margin        REAL,                  -- top1_logit - top2_logit, in the precision of float
    lse           REAL,                  -- log of the sum of exp over the row, NaN left out; 9e999 with a +inf
    n_nan         INTEGER NOT NULL,
    n_posinf      INTEGER NOT NULL,
    n_neginf      INTEGER NOT NULL,
    first_bad     INTEGER,               -- lowest column that is NaN or +inf; never keyed
    topk          TEXT NOT NULL          -- JSON [[id,logit],...], best first; at most PROBE_TOPK pairs
);

-- Differences against a row of the same context that was recorded before, by another arm or by the
-- run of PROBE_BASELINE; the view deltas shows them. One list a row: a row of its own for each id
-- took twice the bytes and five times the work.
CREATE TABLE delta_lists(
    row_id      INTEGER PRIMARY KEY REFERENCES logits,
    base_row_id INTEGER NOT NULL,        -- logits.row_id, in this file unless forwards.base_run_uuid is set
    scale       REAL NOT NULL,           -- a power of two; logits stand in the list times this
    -- JSON [[id,logit,base logit],...] by id, exact at the base row's top ids. At this row's other ids
    -- [id,logit,base logit,1]: the base value is at most that, the last one of the base row's list.
    -- Scaled logits are whole numbers, so exact; where no scale makes them so, scale is 1 and they are
    -- written as in topk. NaN is null.
    list        TEXT NOT NULL
);

-- One loaded device code image.
CREATE TABLE modules(
    module_id     INTEGER PRIMARY KEY,
    hash          TEXT NOT NULL UNIQUE,  -- SHA-256 of the whole image
    size_bytes    INTEGER NOT NULL,
    arch          INTEGER,               -- 90 for sm_90
    cupti_crc     TEXT,                  -- join key to other tools; not an identity
    first_seen_ns INTEGER
);

-- One kernel of a module.
CREATE TABLE kernels(
    kernel_id          INTEGER PRIMARY KEY,
    name               TEXT NOT NULL,    -- mangled
    module_id          INTEGER REFERENCES modules,
    code_hash          TEXT,             -- SHA-256 over the code and what changes its results
    const_hash         TEXT,             -- SHA-256 over the module's constant data
    registers          INTEGER,
    static_smem_bytes  INTEGER,
    stack_bytes        INTEGER,
    max_threads        INTEGER,          -- launch bound
    resolve            TEXT,             -- how the code was found: exact (by its handle), symbol (by its
                                         -- name), ambiguous (several have it); NULL: not found
    UNIQUE (name, code_hash, module_id)
);

-- One way of launching a kernel.
CREATE TABLE launch_configs(
    config_id          INTEGER PRIMARY KEY,
    kernel_id          INTEGER NOT NULL REFERENCES kernels,
    grid_x  INTEGER NOT NULL, grid_y  INTEGER NOT NULL, grid_z  INTEGER NOT NULL,
    block_x INTEGER NOT NULL, block_y INTEGER NOT NULL, block_z INTEGER NOT NULL,
    dynamic_smem_bytes INTEGER NOT NULL,
    cluster_x INTEGER, cluster_y INTEGER, cluster_z INTEGER,
    attributes         TEXT,             -- launch attributes, NAME=VALUE, space between; NULL = none
    UNIQUE (kernel_id, grid_x, grid_y, grid_z, block_x, block_y, block_z, dynamic_smem_bytes,
            cluster_x, cluster_y, cluster_z, attributes)
);

-- A content-addressed, ordered list of launch configurations.
CREATE TABLE kernel_lists(
    kernel_list_id INTEGER PRIMARY KEY,
    hash           TEXT NOT NULL UNIQUE,
    n              INTEGER NOT NULL      -- launches
);

-- The launches of a list.
CREATE TABLE kernel_list_items(
    kernel_list_id INTEGER NOT NULL REFERENCES kernel_lists,
    ord            INTEGER NOT NULL,     -- launch order, from 0
    config_id      INTEGER NOT NULL REFERENCES launch_configs,
    label          TEXT,                 -- the engine's name of the graph node, if it gave one
    PRIMARY KEY (kernel_list_id, ord)
) WITHOUT ROWID;

-- What a run that is recording calls its kernel lists, for the records that wait in its spool; empty
-- for a run that has ended.
CREATE TABLE list_numbers(
    run_id         INTEGER NOT NULL REFERENCES runs,
    number         INTEGER NOT NULL,
    kernel_list_id INTEGER NOT NULL REFERENCES kernel_lists,
    PRIMARY KEY (run_id, number)
) WITHOUT ROWID;

-- One instantiated CUDA graph.
CREATE TABLE graph_execs(
    graph_exec_id  INTEGER PRIMARY KEY,
    run_id         INTEGER NOT NULL REFERENCES runs,
    kernel_list_id INTEGER REFERENCES kernel_lists,
    label          TEXT,
    version        INTEGER NOT NULL,     -- counts updates of the same graph
    created_ns     INTEGER
);

-- What was not recorded, and why. Kinds of the recorder: rows_dropped, forwards_dropped (their rows are
-- in rows_dropped too), records_dropped (tokens, settings, sequences) found the ring full;
-- device_rows_dropped and device_capture: rows in GPU memory, and the reason; calls_refused: hook calls
-- whose arguments make no sense; records_refused: the schema refused them; write_failed: times that
-- the database could not be written, and the last reason, what waited was written later;
-- of kernels: launches_outside of all forwards; forwards_unmarked, made up where no engine marks them;
-- graph_unknown, graph_conditional, launches_unseen, kernels_ambiguous, kernel_lists_left_out,
-- kernel_lists_lost, modules_left_out, modules_unread, kernels_paused; cupti_refused, with the reason;
-- probe_not_loaded: what `neartie record` knows of a program that it was not loaded into;
-- baseline_unread, baseline_rows_left_out: PROBE_BASELINE; import: what `neartie import` cannot know.
-- Of `neartie merge`: texts_differ, token ids that have another text in the file merged before it.
-- Kinds of `neartie prune`: rows_pruned, and deltas_pruned, lists of rows that stay whose base row went.
CREATE TABLE gaps(
    gap_id     INTEGER PRIMARY KEY,
    run_id     INTEGER NOT NULL REFERENCES runs,
    forward_id INTEGER REFERENCES forwards,
    kind       TEXT NOT NULL,
    count      INTEGER NOT NULL,         -- since the run began
    detail     TEXT
);

-- Texts of the token ids that occur.
CREATE TABLE vocab(
    model_hash TEXT NOT NULL,            -- '' where the engine gave none
    token      INTEGER NOT NULL,
    text       BLOB NOT NULL,            -- bytes of the token; not always valid UTF-8 alone
    PRIMARY KEY (model_hash, token)
) WITHOUT ROWID;

-- Noise floors measured on known-good pairs.
CREATE TABLE calibrations(
    calibration_id INTEGER PRIMARY KEY,
    label          TEXT NOT NULL UNIQUE,
    class          TEXT,
    control        TEXT NOT NULL,        -- what was compared, in words
    n              INTEGER NOT NULL,     -- rows
    scale          REAL NOT NULL,        -- 1.4826 median |contrast| over rows that are not zero
    quantiles      TEXT NOT NULL         -- JSON [[p,value],...]
);
