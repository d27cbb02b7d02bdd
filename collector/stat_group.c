#include "config.h"

#include "collector/stat_group.h"
#include "collector/xalloc.h"

/* What a slot looks at. The first figures come from the row's place and are looked up once a place;
 * the others are the row's own. */
enum figure {
    FIG_PHASE,
    FIG_BATCH_ROW,
    FIG_N_TOKENS,
    FIG_N_SEQS,
    FIG_UBATCH_INDEX,
    FIG_N_UBATCH,
    FIG_KERNEL_LIST,
    FIG_TAG, /* FIG_TAG + t: tag t of the caller's */
    FIG_PLACE_END = FIG_TAG + PAIR_MAX_TAGS,
    FIG_AFTER = FIG_PLACE_END, /* rows since the start of the forward, if it is not the first */
    FIG_BEFORE,                /* rows up to the end of the forward */
    FIG_TILE,                  /* whether the row's tile of `modulus` rows of the forward is full */
    FIG_RESIDUE,
    FIG_OCTAVE /* of the position */
};

static const struct figure_info {
    const char *name;
    bool ordered; /* larger and smaller mean something */
} figure_table[] = {
    [FIG_PHASE] = {"phase", false},
    [FIG_BATCH_ROW] = {"batch_row", true},
    [FIG_N_TOKENS] = {"n_tokens", true},
    [FIG_N_SEQS] = {"n_seqs", true},
    [FIG_UBATCH_INDEX] = {"ubatch_index", true},
    [FIG_N_UBATCH] = {"n_ubatch", true},
    [FIG_KERNEL_LIST] = {"kernel_list", false},
};

enum {
    MOST_VALUES = 64,    /* distinct values of a figure that each become an atom; more are joined */
    MOST_CONFIGS = 4096, /* launch configurations that each become a group */
    MOST_SLOTS = 48,
    N_NEAR = 6, /* atoms of a distance to a boundary: 1, 2, 3, 4, 5 to 8, further */
    N_OCTAVES = 31
};

static const int near_limits[] = {1, 2, 3, 4, 8}; /* an atom ends at each, one more lies beyond */

/* One figure of one side, and its atoms. */
struct slot {
    int figure, side, modulus;
    int first, n;    /* atoms first ... first + n - 1 */
    int32_t *values; /* (n) of a place: smallest value of each atom, ascending; owned */
    bool joined;     /* an atom holds several values */
};

struct groups {
    int n, cap, n_atoms;
    struct group *groups;
    int **atom_lists; /* (n) owned, behind groups[g].atoms */
    int n_slots;
    struct slot slots[MOST_SLOTS];

    const struct pairs *bound;
    int *place_atoms; /* (n_wheres, n_slots) atom, or -1 */
    int found[MOST_SLOTS];
};

static int32_t place_figure(const struct pair_where *where, int side, int figure)
{
    const struct pair_place *place = side == 0 ? &where->a : &where->b;
    switch (figure) {
    case FIG_PHASE:
        return place->phase;
    case FIG_BATCH_ROW:
        return place->batch_row;
    case FIG_N_TOKENS:
        return place->n_tokens;
    case FIG_N_SEQS:
        return place->n_seqs;
    case FIG_UBATCH_INDEX:
        return place->ubatch_index;
    case FIG_N_UBATCH:
        return place->n_ubatch;
    case FIG_KERNEL_LIST:
        return place->kernel_list;
    default:
        return where->tags[figure - FIG_TAG];
    }
}

static int compare_int32(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static struct slot *add_slot(struct groups *groups, int figure, int side, int n_atoms)
{
    struct slot *slot = &groups->slots[groups->n_slots++];
    *slot = (struct slot){.figure = figure, .side = side, .first = groups->n_atoms, .n = n_atoms};
    groups->n_atoms += n_atoms;
    return slot;
}

/* Add a group of the atoms of a slot from `from` up to but not including `to`, counted within the
 * slot. The atoms are filled in; the caller sets the rest. */
static struct group *add_range(struct groups *groups, const struct slot *slot, const char *field,
                               enum group_test test, int32_t value, int from, int to)
{
    if (groups->n == groups->cap) {
        groups->cap = groups->cap ? 2 * groups->cap : 256;
        groups->groups = xrealloc(groups->groups, (size_t)groups->cap, sizeof *groups->groups);
        groups->atom_lists =
            xrealloc(groups->atom_lists, (size_t)groups->cap, sizeof *groups->atom_lists);
    }
    int *atoms = xcalloc((size_t)(to - from), sizeof *atoms);
    for (int k = from; k < to; k++)
        atoms[k - from] = slot->first + k;
    groups->atom_lists[groups->n] = atoms;
    struct group *group = &groups->groups[groups->n++];
    *group = (struct group){.field = field,
                            .side = slot->side,
                            .test = test,
                            .value = value,
                            .slot = (int)(slot - groups->slots),
                            .n_atoms = to - from,
                            .atoms = atoms};
    return group;
}

/* Distinct known values of a figure over the places, ascending; the caller frees. */
static int32_t *distinct_values(const struct pairs *pairs, int side, int figure, size_t *out_n,
                                bool *out_unknown)
{
    int32_t *values = xcalloc(pairs->wheres.n, sizeof *values);
    size_t n = 0;
    *out_unknown = false;
    for (size_t w = 0; w < pairs->wheres.n; w++)
        values[w] = place_figure(pairs_where(pairs, w), side, figure);
    qsort(values, pairs->wheres.n, sizeof *values, compare_int32);
    for (size_t w = 0; w < pairs->wheres.n; w++) {
        *out_unknown |= values[w] == PAIR_UNKNOWN;
        if (values[w] != PAIR_UNKNOWN && (!n || values[n - 1] != values[w]))
            values[n++] = values[w];
    }
    *out_n = n;
    return values;
}

/* A slot for a figure of the place, where it parts the rows; one group a value, and one above each
 * value but the last. */
static void add_figure(struct groups *groups, const struct pairs *pairs, int side, int figure,
                       const char *field, bool ordered)
{
    size_t n;
    bool unknown;
    int32_t *values = distinct_values(pairs, side, figure, &n, &unknown);
    if (n + unknown < 2 || n == 0) {
        free(values);
        return;
    }
    size_t step = figure == FIG_KERNEL_LIST ? 1 : (n + MOST_VALUES - 1) / MOST_VALUES;
    int n_atoms = (int)((n + step - 1) / step);
    struct slot *slot = add_slot(groups, figure, side, n_atoms);
    slot->joined = step > 1;
    slot->values = values;
    for (int k = 0; ordered && k + 1 < n_atoms; k++)
        add_range(groups, slot, field, GROUP_ABOVE, values[(size_t)(k + 1) * step - 1], k + 1,
                  n_atoms);
    for (int k = 0; step == 1 && n_atoms <= MOST_VALUES && k < n_atoms; k++)
        add_range(groups, slot, field, GROUP_EQUAL, values[k], k, k + 1);
    for (int k = 0; k < n_atoms; k++)
        values[k] = values[(size_t)k * step];
}

static int compare_config(const void *a, const void *b)
{
    const struct pair_kernel *x = a, *y = b;
    int order = compare_int32(&x->config, &y->config);
    return order ? order : compare_int32(&x->kernel_list, &y->kernel_list);
}

/* The atom of a value within a slot of a place, or -1. */
static int find_atom(const struct slot *slot, int32_t value)
{
    int low = 0, high = slot->n;
    if (value == PAIR_UNKNOWN)
        return -1;
    while (low < high) {
        int mid = (low + high) / 2;
        if (slot->values[mid] <= value)
            low = mid + 1;
        else
            high = mid;
    }
    if (low == 0 || (!slot->joined && slot->values[low - 1] != value))
        return -1;
    return slot->first + low - 1;
}

/* One group for every launch configuration: the kernel lists that contain it. */
static void add_configs(struct groups *groups, const struct pairs *pairs, const struct slot *slot)
{
    struct pair_kernel *kernels = xcalloc(pairs->n_kernels, sizeof *kernels);
    if (pairs->n_kernels)
        memcpy(kernels, pairs->kernels, pairs->n_kernels * sizeof *kernels);
    qsort(kernels, pairs->n_kernels, sizeof *kernels, compare_config);
    int n_groups = 0;
    for (size_t i = 0, end; i < pairs->n_kernels && n_groups < MOST_CONFIGS; i = end) {
        int *atoms = xcalloc(pairs->n_kernels - i, sizeof *atoms), n = 0, last = -1;
        for (end = i; end < pairs->n_kernels && kernels[end].config == kernels[i].config; end++) {
            int atom = find_atom(slot, kernels[end].kernel_list);
            if (atom >= 0 && atom != last)
                atoms[n++] = last = atom;
        }
        if (n > 0 && n < slot->n) {
            struct group *group =
                add_range(groups, slot, "kernel", GROUP_CONTAINS, kernels[i].config, 0, 0);
            free(groups->atom_lists[groups->n - 1]);
            groups->atom_lists[groups->n - 1] = atoms;
            group->atoms = atoms;
            group->n_atoms = n;
            n_groups++;
        } else {
            free(atoms);
        }
    }
    free(kernels);
}

static void add_places(struct groups *groups, const struct pairs *pairs)
{
    for (int t = 0; t < pairs->n_tags; t++)
        add_figure(groups, pairs, PAIR_UNKNOWN, FIG_TAG + t, pairs->tag_names[t], true);
    for (int side = 1; side >= 0; side--)
        for (int figure = FIG_PHASE; figure < FIG_TAG; figure++) {
            int before = groups->n_slots;
            add_figure(groups, pairs, side, figure, figure_table[figure].name,
                       figure_table[figure].ordered);
            if (figure == FIG_KERNEL_LIST && groups->n_slots > before)
                add_configs(groups, pairs, &groups->slots[before]);
        }
}

/* Distance to the start and to the end of the forward, for a side that runs several tokens in one.
 */
static void add_boundaries(struct groups *groups, const struct pairs *pairs, int side)
{
    bool several = false;
    for (size_t i = 0; i < pairs->n && !several; i++)
        several = pairs->offset[side][i] > 0;
    if (!several)
        return;
    const struct slot *after = add_slot(groups, FIG_AFTER, side, N_NEAR);
    for (int k = 0; k + 1 < N_NEAR; k++)
        add_range(groups, after, "rows after a boundary", GROUP_AFTER, near_limits[k], 0, k + 1);
    const struct slot *before = add_slot(groups, FIG_BEFORE, side, N_NEAR);
    for (int k = 0; k + 1 < N_NEAR; k++)
        add_range(groups, before, "rows before a boundary", GROUP_BEFORE, near_limits[k], 0, k + 1);
}

/* Rows that do not fill the last tile of a forward, for a side that runs several tokens in one. */
static void add_tiles(struct groups *groups, const struct pairs *pairs, int side)
{
    static const int tiles[] = {8, 16, 32, 64};
    for (size_t t = 0; t < sizeof tiles / sizeof *tiles; t++) {
        bool partial = false;
        for (size_t w = 0; w < pairs->wheres.n && !partial; w++) {
            const struct pair_where *where = pairs_where(pairs, w);
            int32_t n = side == 0 ? where->a.n_tokens : where->b.n_tokens;
            partial = n > tiles[t] && n % tiles[t];
        }
        if (!partial)
            continue;
        struct slot *slot = add_slot(groups, FIG_TILE, side, 2);
        slot->modulus = tiles[t];
        add_range(groups, slot, "rows of a partial tile", GROUP_PARTIAL, tiles[t], 0, 1);
    }
}

static void add_residues(struct groups *groups, int modulus)
{
    static const int windows[] = {2, 3, 4, 8};
    struct slot *slot = add_slot(groups, FIG_RESIDUE, PAIR_UNKNOWN, modulus);
    slot->modulus = modulus;
    for (int r = 0; r < modulus; r++)
        add_range(groups, slot, "pos", GROUP_RESIDUE, r, r, r + 1)->modulus = modulus;
    for (size_t w = 0; w < sizeof windows / sizeof *windows && 2 * windows[w] <= modulus; w++) {
        int n = windows[w];
        add_range(groups, slot, "pos", GROUP_WINDOW, n, 0, n)->modulus = modulus;
        add_range(groups, slot, "pos", GROUP_TAIL, n, modulus - n, modulus)->modulus = modulus;
    }
}

static void add_positions(struct groups *groups, const struct pairs *pairs, int chunk)
{
    static const int moduli[] = {16, 32, 64};
    enum { MOST_CHUNK = 8192 };
    int32_t last = 0;
    for (size_t i = 0; i < pairs->n; i++)
        last = pairs->pos[i] > last ? pairs->pos[i] : last;
    for (int side = 1; side >= 0; side--) {
        add_boundaries(groups, pairs, side);
        add_tiles(groups, pairs, side);
    }
    for (size_t m = 0; m < sizeof moduli / sizeof *moduli && moduli[m] <= last; m++)
        add_residues(groups, moduli[m]);
    if (chunk > 1 && chunk != 16 && chunk != 32 && chunk != 64 && chunk <= last &&
        chunk <= MOST_CHUNK)
        add_residues(groups, chunk);
    const struct slot *octaves = add_slot(groups, FIG_OCTAVE, PAIR_UNKNOWN, N_OCTAVES);
    for (int k = 1; k < N_OCTAVES && (int32_t)1 << k <= last; k++)
        add_range(groups, octaves, "pos", GROUP_ABOVE, ((int32_t)1 << k) - 1, k, N_OCTAVES);
}

static void count_kin(struct groups *groups)
{
    int counts[MOST_SLOTS] = {0};
    for (int g = 0; g < groups->n; g++)
        counts[groups->groups[g].slot]++;
    for (int g = 0; g < groups->n; g++) {
        struct group *group = &groups->groups[g];
        int n_atoms = groups->slots[group->slot].n, n = counts[group->slot];
        group->n_kin = n < n_atoms ? n : n_atoms;
    }
}

struct groups *groups_new(const struct pairs *pairs, int chunk)
{
    struct groups *groups = xcalloc(1, sizeof *groups);
    add_places(groups, pairs);
    add_positions(groups, pairs, chunk);
    count_kin(groups);
    return groups;
}

void groups_free(struct groups *groups)
{
    if (!groups)
        return;
    for (int g = 0; g < groups->n; g++)
        free(groups->atom_lists[g]);
    for (int s = 0; s < groups->n_slots; s++)
        free(groups->slots[s].values);
    free(groups->groups);
    free(groups->atom_lists);
    free(groups->place_atoms);
    free(groups);
}

int groups_count(const struct groups *groups)
{
    return groups->n;
}

int groups_n_atoms(const struct groups *groups)
{
    return groups->n_atoms;
}

const struct group *groups_at(const struct groups *groups, int g)
{
    return &groups->groups[g];
}

void group_name(const struct group *group, char *buf, size_t size)
{
    const char *side = group->side == 0 ? "a." : "";
    switch (group->test) {
    case GROUP_EQUAL:
        snprintf(buf, size, "%s%s = %d", side, group->field, group->value);
        return;
    case GROUP_ABOVE:
        snprintf(buf, size, "%s%s > %d", side, group->field, group->value);
        return;
    case GROUP_AFTER:
        snprintf(buf, size, "%sfirst %d %s", side, group->value, group->field);
        return;
    case GROUP_BEFORE:
        snprintf(buf, size, "%slast %d %s", side, group->value, group->field);
        return;
    case GROUP_PARTIAL:
        snprintf(buf, size, "%s%s of %d", side, group->field, group->value);
        return;
    case GROUP_RESIDUE:
        snprintf(buf, size, "%s mod %d = %d", group->field, group->modulus, group->value);
        return;
    case GROUP_WINDOW:
        snprintf(buf, size, "%s mod %d < %d", group->field, group->modulus, group->value);
        return;
    case GROUP_TAIL:
        snprintf(buf, size, "%s mod %d >= %d", group->field, group->modulus,
                 group->modulus - group->value);
        return;
    case GROUP_CONTAINS:
        snprintf(buf, size, "%s%s %d", side, group->field, group->value);
        return;
    }
}

void groups_bind(struct groups *groups, const struct pairs *pairs)
{
    size_t n_slots = (size_t)groups->n_slots;
    groups->bound = pairs;
    free(groups->place_atoms);
    groups->place_atoms = xcalloc(pairs->wheres.n * n_slots, sizeof *groups->place_atoms);
    for (size_t w = 0; w < pairs->wheres.n; w++)
        for (size_t s = 0; s < n_slots && groups->slots[s].figure < FIG_PLACE_END; s++) {
            const struct slot *slot = &groups->slots[s];
            groups->place_atoms[w * n_slots + s] =
                find_atom(slot, place_figure(pairs_where(pairs, w), slot->side, slot->figure));
        }
}

static int near_atom(int32_t distance)
{
    int k = 0;
    while (k + 1 < N_NEAR && distance > near_limits[k])
        k++;
    return k;
}

/* Tokens of the row's forward on this side, or 0: one token, or the row's place in it unknown. */
static int32_t forward_tokens(const struct pairs *pairs, size_t i, int side)
{
    const struct pair_where *where = pairs_where(pairs, pairs->where[i]);
    int32_t n = side == 0 ? where->a.n_tokens : where->b.n_tokens;
    return pairs->offset[side][i] == PAIR_UNKNOWN || n < 2 ? 0 : n;
}

/* The atom of the row's distance to its forward's start (the first row is 1; not in the first
 * forward of a sequence) or end (the last row is 1), or of its tile; -1: it has none. */
static int forward_atom(const struct pairs *pairs, size_t i, const struct slot *slot)
{
    int32_t offset = pairs->offset[slot->side][i];
    int32_t n = forward_tokens(pairs, i, slot->side);
    if (!n)
        return -1;
    if (slot->figure == FIG_TILE)
        return slot->first + (offset < n / slot->modulus * slot->modulus);
    if (slot->figure == FIG_BEFORE)
        return slot->first + near_atom(n - offset);
    return pairs->pos[i] > offset ? slot->first + near_atom(offset + 1) : -1;
}

/* The atom of a figure that is the row's own, or -1. */
static int row_atom(const struct pairs *pairs, size_t i, const struct slot *slot)
{
    switch (slot->figure) {
    case FIG_RESIDUE:
        return slot->first + pairs->pos[i] % slot->modulus;
    case FIG_OCTAVE:
        return slot->first + 31 - __builtin_clz((unsigned)pairs->pos[i] | 1);
    default:
        return forward_atom(pairs, i, slot);
    }
}

int groups_of_row(struct groups *groups, size_t i, const int **out)
{
    const int *place = &groups->place_atoms[groups->bound->where[i] * (size_t)groups->n_slots];
    int n = 0;
    for (int s = 0; s < groups->n_slots; s++) {
        const struct slot *slot = &groups->slots[s];
        int atom = slot->figure < FIG_PLACE_END ? place[s] : row_atom(groups->bound, i, slot);
        if (atom >= 0)
            groups->found[n++] = atom;
    }
    *out = groups->found;
    return n;
}
