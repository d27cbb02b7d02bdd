#include "config.h"

#include "collector/list_numbers.h"
#include "collector/pairs.h"
#include "collector/xalloc.h"

#include <stdlib.h>
#include <string.h>

/* The lists of an arm, by hash. */
struct known {
    size_t n, size;
    struct known_list {
        int32_t number;
        char hash[65];
    } * list;
};

static int read_lists(struct known *out, const struct load_side *side, struct err *err)
{
    struct query *query;
    int rc;
    if (db_query(side->db, &query, "arm_lists", err))
        return -1;
    query_bind_int(query, ":arm_id", side->arm->arm_id);
    while ((rc = query_step(query, err)) > 0) {
        if (out->n == out->size) {
            out->size = out->size ? 2 * out->size : 64;
            out->list = xrealloc(out->list, out->size, sizeof *out->list);
        }
        struct known_list *list = &out->list[out->n++];
        list->number = (int32_t)query_int(query, "kernel_list_id");
        snprintf(list->hash, sizeof list->hash, "%s", query_text(query, "hash"));
    }
    query_free(query);
    return rc;
}

static int by_from(const void *x, const void *y)
{
    const struct list_number *a = x, *b = y;
    return a->from < b->from ? -1 : a->from > b->from;
}

static void match(struct list_numbers *out, const struct known *from, const struct known *to)
{
    int32_t next = 0;
    for (size_t i = 0; i < to->n; i++)
        next = to->list[i].number > next ? to->list[i].number : next;
    out->list = xcalloc(from->n + 1, sizeof *out->list);
    out->n = from->n;
    for (size_t i = 0, k = 0; i < from->n; i++) {
        while (k < to->n && strcmp(to->list[k].hash, from->list[i].hash) < 0)
            k++;
        bool same = k < to->n && !strcmp(to->list[k].hash, from->list[i].hash);
        out->list[i] =
            (struct list_number){from->list[i].number, same ? to->list[k].number : ++next};
    }
    qsort(out->list, out->n, sizeof *out->list, by_from);
}

int list_numbers_read(struct list_numbers *out, const struct load_side *from,
                      const struct load_side *to, struct err *err)
{
    struct known a = {0}, b = {0};
    *out = (struct list_numbers){0};
    if (from->db == to->db)
        return 0;
    int rc = read_lists(&a, from, err) || read_lists(&b, to, err) ? -1 : 0;
    if (!rc)
        match(out, &a, &b);
    free(a.list);
    free(b.list);
    return rc;
}

void list_numbers_free(struct list_numbers *numbers)
{
    free(numbers->list);
    *numbers = (struct list_numbers){0};
}

int32_t list_numbers_of(const struct list_numbers *numbers, int32_t number)
{
    struct list_number key = {.from = number};
    if (!numbers->n)
        return number;
    const struct list_number *found = bsearch(&key, numbers->list, numbers->n, sizeof key, by_from);
    return found ? found->to : number;
}
