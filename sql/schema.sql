-- The neartie database, schema version 1: what libprobe.so writes and every reader reads.
-- Conventions: ids are local to the file; *_ns is nanoseconds since the Unix epoch (durations:
-- nanoseconds); *_bytes is bytes; hashes are lower-case hex TEXT; unknown is NULL, never 0.

CREATE TABLE meta(
    key   TEXT PRIMARY KEY, -- 'schema_version' (a number as text), 'run_uuid' of the file's first run
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
    argv           TEXT,                 -- command line, a JSON array of strings
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
    class  TEXT,                         -- how it may differ: bitwise, reassoc, precision, weights, engine
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
    top1          INTEGER,               -- ties go to the lowest id; NULL: no finite logit
    top1_logit    REAL,
    top2          INTEGER,
    top2_logit    REAL,
    margin        REAL,                  -- top1_logit - top2_logit, in the precision of float
    lse           REAL,                  -- log of the sum of exp over the row, NaN left out
    n_nan         INTEGER NOT NULL,
    n_posinf      INTEGER NOT NULL,
    n_neginf      INTEGER NOT NULL,
    first_bad     INTEGER,               -- lowest id whose logit is NaN or +inf
    topk          TEXT NOT NULL          -- JSON [[id,logit],...], best first; floats read back bit-equal
);

-- Differences against a row of the same context that was recorded before, at that row's top ids.
CREATE TABLE deltas(
    row_id      INTEGER NOT NULL REFERENCES logits,
    base_row_id INTEGER NOT NULL,        -- logits.row_id, in this file unless forwards.base_run_uuid is set
    token       INTEGER NOT NULL,
    logit       REAL,                    -- this row's logit at token, exact
    base_logit  REAL,                    -- the base row's
    delta       REAL,                    -- logit - base_logit
    bound       INTEGER NOT NULL DEFAULT 0 CHECK (bound IN (0, 1)), -- 1: the base value is at most base_logit
    PRIMARY KEY (row_id, base_row_id, token)
) WITHOUT ROWID;

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
    resolve            TEXT,             -- how the code was found: exact, symbol, ambiguous
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
    attributes         TEXT,             -- digest of the launch attributes, hex
    UNIQUE (kernel_id, grid_x, grid_y, grid_z, block_x, block_y, block_z, dynamic_smem_bytes,
            cluster_x, cluster_y, cluster_z, attributes)
);

-- A content-addressed, ordered list of launch configurations.
CREATE TABLE kernel_lists(
    kernel_list_id INTEGER PRIMARY KEY,
    hash           TEXT NOT NULL UNIQUE,
    n              INTEGER NOT NULL      -- launches
);

CREATE TABLE kernel_list_items(
    kernel_list_id INTEGER NOT NULL REFERENCES kernel_lists,
    ord            INTEGER NOT NULL,     -- launch order, from 0
    config_id      INTEGER NOT NULL REFERENCES launch_configs,
    label          TEXT,                 -- the engine's name of the graph node, if it gave one
    PRIMARY KEY (kernel_list_id, ord)
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

-- What was not recorded, and why.
CREATE TABLE gaps(
    gap_id     INTEGER PRIMARY KEY,
    run_id     INTEGER NOT NULL REFERENCES runs,
    forward_id INTEGER REFERENCES forwards,
    kind       TEXT NOT NULL,            -- rows_dropped, spool_full, disk_full, cupti, unknown_graph, ...
    count      INTEGER NOT NULL,
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
