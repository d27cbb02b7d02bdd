/* Shared by store.c (file, run, transactions), store_put.c (one record) and store_kernels.c;
 * nobody else's. */
#ifndef NEARTIE_SQL_STORE_INTERNAL_H
#define NEARTIE_SQL_STORE_INTERNAL_H

#include <sqlite3.h>

#include "sql/store.h"

/* The prepared statements; their text is in store.c, in this order. */
enum store_statement {
    ST_BEGIN,
    ST_COMMIT,
    ST_ROLLBACK,
    ST_MARK,
    ST_FORWARD,
    ST_END,
    ST_ROW,
    ST_ARM_OF,
    ST_DELTAS,
    ST_TOKEN,
    ST_SETTING,
    ST_SETTING_MORE,
    ST_ARM,
    ST_SEQUENCE_NEW,
    ST_SEQUENCE_GET,
    ST_SEQUENCE_NAME,
    ST_GAP_ADD,
    ST_GAP_SET,
    ST_GAP_NEW,
    ST_VOCAB,
    ST_N_VOCAB,
    ST_MODULE_GET,
    ST_MODULE_NEW,
    ST_KERNEL_GET,
    ST_KERNEL_NEW,
    ST_CONFIG_GET,
    ST_CONFIG_NEW,
    ST_LIST_GET,
    ST_LIST_NEW,
    ST_LIST_ITEM,
    ST_LIST_NUMBER,
    ST_LIST_OF,
    ST_GRAPH_EXEC,
    N_STATEMENTS
};

enum {
    SEQUENCE_CACHE = 4096,
    HELD_MAX = 8192,          /* records of a kind that are held back in a transaction */
    HELD_INDEX = 4 * HELD_MAX /* more than the ids of that many records span */
};

/* Forwards or rows of this transaction, held back until it is committed: what comes later and
 * belongs to them (their end, their token) is then inserted with them and costs no update. */
struct held {
    int n;
    struct held_item {
        uint64_t id;
        const void *record; /* in the ring; see store_put */
        int64_t late;       /* what came later; HELD_NONE */
        int64_t list;       /* a forward's kernel_list_id; 0 = unknown */
    } items[HELD_MAX];
    uint16_t at[HELD_INDEX]; /* position of an id, by its low bits; checked when it is read */
};
#define HELD_NONE INT64_MIN

struct store {
    sqlite3 *db;
    sqlite3_stmt *st[N_STATEMENTS];
    char path[4096];
    char mark_key[48]; /* meta key of this run's progress */
    int64_t run_id;
    char
        base_run_uuid[33]; /* deltas are against that run, of another file; "" = against this one */
    int64_t row_offset, forward_offset, arm_offset; /* file id = record's id + offset */
    bool n_vocab_known;                             /* runs.n_vocab has been filled */
    uint64_t n_refused;                             /* records that the schema refused */
    uint64_t lost[N_LOST], lost_in_file[N_LOST];    /* see store_lost */
    uint64_t n_refused_in_file;                     /* of these, stated in `gaps` */
    struct store_vocab vocab;                       /* borrowed */
    unsigned char *vocab_done;                      /* bit per id: its text is in the file */
    struct held forwards, rows;
    int64_t arm_of_forward, arm_id; /* the last forward whose arm was looked up; 0 = none */
    int64_t list_id;                /* the last list that was looked up, by its number: */
    uint32_t list_number;           /* 0 = none */
    struct {
        int64_t seq, seq_id;     /* seq_id 0 = empty */
    } sequences[SEQUENCE_CACHE]; /* direct-mapped by seq */
};

/* Fill err from SQLite's own message; returns -1. */
int store_fail(const struct store *s, struct err *err);

/* Insert what is held back. */
int store_flush(struct store *s, struct err *err);

/* The file's id of a list number, 0 where it is not known; -1 = failed. */
int64_t store_list_id(struct store *s, uint32_t number, struct err *err);

/* Run a statement that returns no row, then reset it. */
int store_step(struct store *s, enum store_statement which, struct err *err);

#endif
