#include "config.h"

#include "sql/store_kernels.h"

#include <string.h>

#include "sql/store_internal.h"

/* NULL for none. */
static void bind_text(sqlite3_stmt *st, int i, const char *text)
{
    if (text && text[0])
        sqlite3_bind_text(st, i, text, -1, SQLITE_STATIC);
}

static void bind_known(sqlite3_stmt *st, int i, int64_t value)
{
    if (value >= 0)
        sqlite3_bind_int64(st, i, value);
}

static sqlite3_stmt *fresh(struct store *s, enum store_statement which)
{
    sqlite3_clear_bindings(s->st[which]);
    return s->st[which];
}

/* The id that the bound statement finds, 0 where there is none; -1 = failed. */
static int64_t look_up(struct store *s, enum store_statement which, struct err *err)
{
    int rc = sqlite3_step(s->st[which]);
    int64_t id = rc == SQLITE_ROW ? sqlite3_column_int64(s->st[which], 0) : 0;
    if (rc != SQLITE_ROW && rc != SQLITE_DONE)
        id = store_fail(s, err);
    sqlite3_reset(s->st[which]);
    return id;
}

/* Insert by the bound statement; the new id, or -1. */
static int64_t insert(struct store *s, enum store_statement which, struct err *err)
{
    return store_step(s, which, err) ? -1 : sqlite3_last_insert_rowid(s->db);
}

static int64_t module_id(struct store *s, const struct store_kernel *k, struct err *err)
{
    bind_text(fresh(s, ST_MODULE_GET), 1, k->module_hash);
    int64_t id = look_up(s, ST_MODULE_GET, err);
    if (id)
        return id;
    sqlite3_stmt *st = fresh(s, ST_MODULE_NEW);
    bind_text(st, 1, k->module_hash);
    sqlite3_bind_int64(st, 2, k->module_bytes);
    bind_known(st, 3, k->arch);
    bind_known(st, 4, k->first_seen_ns);
    return insert(s, ST_MODULE_NEW, err);
}

int store_kernel(struct store *s, const struct store_kernel *k, int64_t *out_id, struct err *err)
{
    int64_t module = k->module_hash ? module_id(s, k, err) : 0;
    for (int i = 0; i < 2 && module >= 0; i++) {
        enum store_statement which = i ? ST_KERNEL_NEW : ST_KERNEL_GET;
        sqlite3_stmt *st = fresh(s, which);
        bind_text(st, 1, k->name);
        bind_text(st, 2, k->code_hash);
        if (module)
            sqlite3_bind_int64(st, 3, module);
        bind_text(st, 4, k->resolve);
        if (i) {
            bind_text(st, 5, k->const_hash);
            bind_known(st, 6, k->registers);
            bind_known(st, 7, k->static_smem);
            bind_known(st, 8, k->stack);
            bind_known(st, 9, k->max_threads);
        }
        *out_id = i ? insert(s, which, err) : look_up(s, which, err);
        if (*out_id)
            break;
    }
    return module < 0 || *out_id < 0 ? -1 : 0;
}

int store_config(struct store *s, const struct store_config *c, int64_t *out_id, struct err *err)
{
    for (int i = 0; i < 2; i++) {
        enum store_statement which = i ? ST_CONFIG_NEW : ST_CONFIG_GET;
        sqlite3_stmt *st = fresh(s, which);
        sqlite3_bind_int64(st, 1, c->kernel_id);
        for (int k = 0; k < 3; k++) {
            sqlite3_bind_int64(st, 2 + k, c->grid[k]);
            sqlite3_bind_int64(st, 5 + k, c->block[k]);
            if (c->cluster[0])
                sqlite3_bind_int64(st, 9 + k, c->cluster[k]);
        }
        sqlite3_bind_int64(st, 8, c->dynamic_smem);
        bind_text(st, 12, c->attributes);
        *out_id = i ? insert(s, which, err) : look_up(s, which, err);
        if (*out_id)
            break;
    }
    return *out_id < 0 ? -1 : 0;
}

static int64_t new_list(struct store *s, const char *hash, const int64_t *config_ids, uint32_t n,
                        struct err *err)
{
    bind_text(fresh(s, ST_LIST_NEW), 1, hash);
    sqlite3_bind_int64(s->st[ST_LIST_NEW], 2, n);
    int64_t id = insert(s, ST_LIST_NEW, err);
    sqlite3_bind_int64(s->st[ST_LIST_ITEM], 1, id);
    for (uint32_t i = 0; id > 0 && i < n; i++) {
        sqlite3_bind_int64(s->st[ST_LIST_ITEM], 2, i);
        sqlite3_bind_int64(s->st[ST_LIST_ITEM], 3, config_ids[i]);
        if (store_step(s, ST_LIST_ITEM, err))
            return -1;
    }
    return id;
}

int store_list(struct store *s, uint32_t number, const char *hash, const int64_t *config_ids,
               uint32_t n, struct err *err)
{
    bind_text(fresh(s, ST_LIST_GET), 1, hash);
    int64_t id = look_up(s, ST_LIST_GET, err);
    if (!id)
        id = new_list(s, hash, config_ids, n, err);
    if (id < 0)
        return -1;
    sqlite3_bind_int64(s->st[ST_LIST_NUMBER], 1, s->run_id);
    sqlite3_bind_int64(s->st[ST_LIST_NUMBER], 2, number);
    sqlite3_bind_int64(s->st[ST_LIST_NUMBER], 3, id);
    return store_step(s, ST_LIST_NUMBER, err);
}

int64_t store_list_id(struct store *s, uint32_t number, struct err *err)
{
    if (!number || s->list_number == number)
        return number ? s->list_id : 0;
    sqlite3_bind_int64(s->st[ST_LIST_OF], 1, s->run_id);
    sqlite3_bind_int64(s->st[ST_LIST_OF], 2, number);
    int64_t id = look_up(s, ST_LIST_OF, err);
    if (id > 0) {
        s->list_number = number;
        s->list_id = id;
    }
    return id;
}

int store_graph_exec(struct store *s, uint32_t number, const char *label, uint32_t version,
                     int64_t created_ns, struct err *err)
{
    int64_t list = store_list_id(s, number, err);
    if (list < 0)
        return -1;
    sqlite3_stmt *st = fresh(s, ST_GRAPH_EXEC);
    sqlite3_bind_int64(st, 1, s->run_id);
    if (list)
        sqlite3_bind_int64(st, 2, list);
    bind_text(st, 3, label);
    sqlite3_bind_int64(st, 4, version);
    bind_known(st, 5, created_ns);
    return store_step(s, ST_GRAPH_EXEC, err);
}
