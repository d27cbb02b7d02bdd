/* The record: what a hook hands to the writer, fixed in size and complete in itself, so that the
 * same bytes stand in memory, in the spool file, and are read back after a crash. Native byte
 * order: a spool is read on the machine that wrote it. The ids in records count from 1 within the
 * run; the store adds the file's offsets. Nothing here knows SQLite. */
#ifndef NEARTIE_SQL_RECORD_H
#define NEARTIE_SQL_RECORD_H

#include <stddef.h>
#include <stdint.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum {
    RECORD_TOP_MAX = 64,   /* entries of a top-k list, and of a watch list */
    RECORD_LABEL_MAX = 200 /* bytes of a label with its terminator; longer ones are cut */
};

enum record_kind {
    RECORD_NONE,     /* a slot that was given up; no body */
    RECORD_FORWARD,  /* struct record_forward */
    RECORD_END,      /* struct record_end */
    RECORD_ROW,      /* struct record_row, its lists behind it */
    RECORD_TOKEN,    /* struct record_token */
    RECORD_SETTING,  /* struct record_setting, a piece of the value behind it */
    RECORD_ARM,      /* struct record_arm */
    RECORD_SEQUENCE, /* struct record_sequence */
    RECORD_GAP,      /* struct record_gap */
    RECORD_PENDING   /* struct record_row whose results are still being computed */
};

/* A slot begins with this and goes on with the body. */
struct record {
    _Atomic uint64_t seq; /* 1 + number of the record in its run; stored last: publishes it */
    uint32_t check;       /* record_check(); tells a torn record from a whole one */
    uint16_t kind;        /* enum record_kind */
    uint16_t n_bytes;     /* bytes of the body */
    uint64_t body[];      /* one of the structs below */
};

struct record_forward {
    uint64_t forward_id; /* from 1 */
    int64_t started_ns;  /* since the Unix epoch */
    int64_t n_past;
    int32_t arm; /* as declared by a record_arm; 0 = unknown */
    int32_t n_tokens;
    int32_t n_seqs;
    int32_t ubatch_index;
    int32_t n_ubatch;
    uint32_t thread; /* kernel thread id */
};

struct record_end {
    uint64_t forward_id;
    int64_t ended_ns;
    uint32_t list; /* number of its kernel list in this run, see store_kernels.h; 0 = unknown */
};

struct record_top {
    int32_t token;
    float logit;
};

/* This row's and the base row's logit at one of the base row's top ids. */
struct record_base {
    int32_t token;
    float logit;
    float base_logit;
};

/* Behind it: top[n_top], then base[n_base]. */
struct record_row {
    uint64_t row_id; /* from 1 */
    uint64_t forward_id;
    uint64_t context_hash; /* 0 = unknown */
    uint64_t base_row_id;  /* 0 = no base row; of another file: its logits.row_id */
    int64_t seq;
    int64_t pos;
    double lse;
    int32_t batch_row;
    int32_t input_token; /* -1 = unknown */
    int32_t n_vocab;     /* 0 = unknown */
    uint32_t n_nan, n_posinf, n_neginf;
    int32_t first_bad; /* lowest id that is NaN or +inf; -1 = none */
    float base_last;   /* the base row's k-th logit: bounds what its list lacks */
    uint8_t dtype;     /* enum probe_dtype */
    uint8_t n_top;
    uint8_t n_base;
    uint8_t base_whole; /* 1: the base row's list holds its whole vocabulary, nothing to bound */
    struct record_top top[];
};

struct record_token {
    uint64_t row_id;
    int32_t token;
};

/* Values of any length come in pieces, in order. */
struct record_setting {
    uint32_t offset; /* of this piece in the value; 0 starts a new value */
    char source[8];  /* env, default or api */
    char name[60];
    char text[]; /* n_bytes - offsetof(text) bytes, no terminator */
};

struct record_arm {
    int32_t arm;    /* from 1 */
    uint32_t phase; /* enum probe_phase */
    char cls[16];   /* "" = none given */
    char label[RECORD_LABEL_MAX];
};

struct record_sequence {
    int64_t seq;
    int64_t parent; /* -1 = none */
    char label[RECORD_LABEL_MAX];
};

struct record_gap {
    uint64_t count; /* to add to the count of the same kind and detail */
    char kind[32];
    char detail[RECORD_LABEL_MAX];
};

/* Who recorded: the columns of `runs` that are known at the start. Empty string = unknown. */
struct run_identity {
    char uuid[33]; /* 32 hex digits */
    char host[65];
    char base_run_uuid[33]; /* the run of another database that its rows are compared with */
    char build_id[129];     /* hex */
    char probe_version[29];
    char exe[1024];
    char argv[4096]; /* JSON array of strings */
    int64_t pid;
    int64_t started_ns;
};

static inline struct record_base *record_row_base(const struct record_row *row)
{
    return (struct record_base *)(row->top + row->n_top);
}

/* Bytes of a row record's body. */
static inline size_t record_row_bytes(int n_top, int n_base)
{
    return sizeof(struct record_row) + (size_t)n_top * sizeof(struct record_top) +
           (size_t)n_base * sizeof(struct record_base);
}

/* Bytes of a slot whose rows carry lists of k and watch entries: cache lines, and never less than
 * every other record needs. */
static inline size_t record_slot_bytes(int k, int watch)
{
    size_t need = sizeof(struct record) + record_row_bytes(k, watch);
    size_t least = sizeof(struct record) + sizeof(struct record_gap) + 128;
    return ((need > least ? need : least) + 63) & ~(size_t)63;
}

/* The check word of a record that will be number seq. */
static inline uint32_t record_check(const struct record *r, uint64_t seq)
{
    const unsigned char *from = (const unsigned char *)&r->kind;
    size_t n = sizeof r->kind + sizeof r->n_bytes + r->n_bytes;
    return (uint32_t)XXH3_64bits_withSeed(from, n, seq);
}

#endif
