#include "config.h"

#include "shim/lineage.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "sql/context_hash.h"

enum { POSITIONS_MAX = 1 << 22 };

static bool make_room(struct lineage *l, int32_t n)
{
    if (n <= l->room)
        return true;
    if (n > POSITIONS_MAX)
        return false;
    int32_t room = n < 256 ? 256 : n * 2;
    uint64_t *more = realloc(l->hash, (size_t)room * sizeof *more);
    if (!more)
        return false;
    l->hash = more;
    l->room = room;
    return true;
}

void lineage_clear(struct lineage *l)
{
    free(l->hash);
    *l = (struct lineage){0};
}

void lineage_spoil(struct lineage *l, int32_t p0)
{
    if (p0 < 0)
        p0 = 0;
    if (p0 < l->known)
        l->known = p0;
}

uint64_t lineage_push(struct lineage *l, uint64_t start, int32_t pos, int32_t token)
{
    bool follows = pos == l->n && l->known == l->n && token >= 0 && make_room(l, pos + 1);
    if (follows) {
        l->hash[pos] = context_hash(pos ? l->hash[pos - 1] : start, &token, 1);
        l->known = pos + 1;
    } else
        lineage_spoil(l, pos);
    if (pos >= l->n && pos < INT32_MAX)
        l->n = pos + 1;
    return follows ? l->hash[pos] : 0;
}

void lineage_remove(struct lineage *l, int32_t p0, int32_t p1)
{
    if (p0 < 0)
        p0 = 0;
    if (p0 >= l->n || (p1 >= 0 && p1 <= p0))
        return;
    lineage_spoil(l, p0);
    if (p1 < 0 || p1 >= l->n)
        l->n = p0;
    if (l->n == 0)
        lineage_clear(l);
}

void lineage_copy(const struct lineage *from, struct lineage *to, int32_t p0, int32_t p1)
{
    int32_t n = p1 < 0 || p1 > from->n ? from->n : p1;
    if (from == to || n <= 0 || p0 >= n)
        return;
    int32_t known = n < from->known ? n : from->known;
    if (to->n || p0 > 0)
        lineage_spoil(to, 0);
    else if (make_room(to, known)) {
        if (known)
            memcpy(to->hash, from->hash, (size_t)known * sizeof *to->hash);
        to->known = known;
    }
    to->n = to->n > n ? to->n : n;
    if (!to->number)
        to->parent = from->number;
}

void lineage_replace(struct lineage *l, const uint64_t *hash, int32_t n)
{
    lineage_clear(l);
    if (n <= 0 || !make_room(l, n))
        return;
    memcpy(l->hash, hash, (size_t)n * sizeof *hash);
    l->n = l->known = n;
}

void lineage_agree(struct lineage *l, int32_t n)
{
    if (n == 0)
        lineage_clear(l);
    else if (n > l->n || (n < l->n && l->known == l->n) || n < l->known)
        lineage_spoil(l, 0);
    l->n = n; /* fewer, where there were holes: they reached to the end */
}
