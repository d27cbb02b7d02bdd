#include "config.h"

#include "collector/texts.h"
#include "collector/xalloc.h"
#include "sql/sql_text.h"

#include <sqlite3.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum {
    TEXTS_MAX = 1 << 20, /* texts */
    NAMED_MAX = 1 << 22  /* ids below this have their texts stored */
};

struct texts {
    sqlite3 *db;
    sqlite3_stmt *find, *add, *name, *all;
    int64_t n;
    struct store_vocab vocab;
    uint32_t *offset; /* vocab's */
    char *bytes;      /* vocab's */
};

static int fail(const struct texts *texts, struct err *err)
{
    return err_set(err, "texts of tokens: %s", sqlite3_errmsg(texts->db));
}

int texts_open(struct texts **out, struct err *err)
{
    struct texts *t = *out = xcalloc(1, sizeof *t);
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    return sqlite3_open_v2(":memory:", &t->db, flags, NULL) ||
                   sqlite3_exec(t->db, sql_import_texts, NULL, NULL, NULL) ||
                   sqlite3_prepare_v2(t->db, "SELECT id FROM texts WHERE text = ?", -1, &t->find,
                                      NULL) ||
                   sqlite3_prepare_v2(t->db, "INSERT INTO texts(text) VALUES(?)", -1, &t->add,
                                      NULL) ||
                   sqlite3_prepare_v2(t->db, "INSERT OR IGNORE INTO names VALUES(?,?)", -1,
                                      &t->name, NULL) ||
                   sqlite3_prepare_v2(t->db, "SELECT text FROM texts ORDER BY id", -1, &t->all,
                                      NULL)
               ? fail(t, err)
               : 0;
}

void texts_close(struct texts *texts)
{
    if (!texts)
        return;
    sqlite3_finalize(texts->find);
    sqlite3_finalize(texts->add);
    sqlite3_finalize(texts->name);
    sqlite3_finalize(texts->all);
    sqlite3_close(texts->db);
    free(texts->offset);
    free(texts->bytes);
    free(texts);
}

sqlite3 *texts_db(struct texts *texts)
{
    return texts->db;
}

static int step(struct texts *texts, sqlite3_stmt *st, struct err *err)
{
    int rc = sqlite3_step(st);
    sqlite3_reset(st);
    return rc == SQLITE_DONE ? 0 : fail(texts, err);
}

int32_t texts_find(struct texts *texts, const struct logprob_entry *entry)
{
    int32_t number = -1;
    if (!entry->text)
        return -1;
    sqlite3_bind_blob(texts->find, 1, entry->text, entry->n_text, SQLITE_STATIC);
    if (sqlite3_step(texts->find) == SQLITE_ROW)
        number = sqlite3_column_int(texts->find, 0) - 1;
    sqlite3_reset(texts->find);
    return number;
}

int texts_add(struct texts *texts, const struct logprob_entry *entry, struct err *err)
{
    if (!entry->text)
        return 0;
    if (entry->id >= 0) {
        sqlite3_bind_int64(texts->name, 1, entry->id);
        sqlite3_bind_blob(texts->name, 2, entry->text, entry->n_text, SQLITE_STATIC);
        if (step(texts, texts->name, err))
            return -1;
    }
    if (texts_find(texts, entry) >= 0)
        return 0;
    if (texts->n++ == TEXTS_MAX)
        return err_set(err, "texts of tokens: more than %d", TEXTS_MAX);
    sqlite3_bind_blob(texts->add, 1, entry->text, entry->n_text, SQLITE_STATIC);
    return step(texts, texts->add, err);
}

uint64_t texts_hash(struct texts *texts)
{
    uint64_t hash = 0;
    while (sqlite3_step(texts->all) == SQLITE_ROW) {
        const void *text = sqlite3_column_blob(texts->all, 0);
        hash = XXH3_64bits_withSeed(text, (size_t)sqlite3_column_bytes(texts->all, 0), hash + 1);
    }
    sqlite3_reset(texts->all);
    return hash;
}

/* Put what a statement gives, (id, text) by id, into the vocabulary. */
static void fill_vocab(struct texts *texts, sqlite3_stmt *st, size_t n)
{
    size_t size = 0, n_bytes = 0, next = 0;
    texts->offset = xcalloc(n + 1, sizeof *texts->offset);
    while (sqlite3_step(st) == SQLITE_ROW) {
        size_t id = (size_t)sqlite3_column_int64(st, 0);
        size_t n_text = (size_t)sqlite3_column_bytes(st, 1);
        if (id >= n || n_bytes + n_text > UINT32_MAX)
            break;
        if (n_bytes + n_text > size) {
            size = 2 * (n_bytes + n_text);
            texts->bytes = xrealloc(texts->bytes, size, 1);
        }
        if (n_text)
            memcpy(texts->bytes + n_bytes, sqlite3_column_blob(st, 1), n_text);
        while (next <= id)
            texts->offset[next++] = (uint32_t)n_bytes;
        n_bytes += n_text;
    }
    while (next <= n)
        texts->offset[next++] = (uint32_t)n_bytes;
    texts->vocab = (struct store_vocab){(int32_t)n, texts->offset, texts->bytes};
}

const struct store_vocab *texts_vocab(struct texts *texts, bool by_id)
{
    const char *last = by_id ? "SELECT max(id) FROM names WHERE id < ?"
                             : "SELECT max(id) - 1 FROM texts WHERE id <= ?";
    const char *all = by_id ? "SELECT id, text FROM names WHERE id < ? ORDER BY id"
                            : "SELECT id - 1, text FROM texts WHERE id <= ? ORDER BY id";
    sqlite3_stmt *st = NULL;
    size_t n = 0;
    if (!sqlite3_prepare_v2(texts->db, last, -1, &st, NULL)) {
        sqlite3_bind_int(st, 1, NAMED_MAX);
        if (sqlite3_step(st) == SQLITE_ROW && sqlite3_column_type(st, 0) != SQLITE_NULL)
            n = (size_t)sqlite3_column_int64(st, 0) + 1;
    }
    sqlite3_finalize(st);
    st = NULL;
    if (n && !sqlite3_prepare_v2(texts->db, all, -1, &st, NULL)) {
        sqlite3_bind_int(st, 1, NAMED_MAX);
        fill_vocab(texts, st, n);
    }
    sqlite3_finalize(st);
    return &texts->vocab;
}
