#include "config.h"

#include "shim/facts.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim/ring.h"

static bool record_setting(struct spool *sp, const struct fact_setting *f)
{
    struct record_setting r = {0};
    size_t room =
        sp->head->slot_bytes - sizeof(struct record) - offsetof(struct record_setting, text);
    size_t n = strlen(f->value), at = 0;
    memcpy(r.source, f->source, sizeof r.source);
    snprintf(r.name, sizeof r.name, "%s", f->name);
    do {
        size_t piece = n - at < room ? n - at : room;
        r.offset = (uint32_t)at;
        if (!ring_push(sp, RECORD_SETTING, &r, offsetof(struct record_setting, text), f->value + at,
                       piece))
            return false;
        at += piece;
    } while (at < n);
    return true;
}

static bool record_arm(struct spool *sp, const struct record_arm *arm)
{
    return ring_push(sp, RECORD_ARM, arm, sizeof *arm, NULL, 0);
}

/* With the lock held. */
static void catch_up(struct facts *f, struct spool *sp)
{
    bool behind = false;
    for (int32_t i = 0; i < f->n_arms; i++) {
        struct fact_arm *a = &f->arms[i];
        a->recorded = a->recorded || record_arm(sp, &a->arm);
        behind |= !a->recorded;
    }
    for (int32_t i = 0; i < f->n_settings; i++) {
        struct fact_setting *s = &f->settings[i];
        s->recorded = s->recorded || record_setting(sp, s);
        behind |= !s->recorded;
    }
    atomic_store(&f->behind, behind);
}

void facts_catch_up(struct facts *f, struct spool *sp)
{
    if (!atomic_load_explicit(&f->behind, memory_order_relaxed))
        return;
    pthread_mutex_lock(&f->lock);
    catch_up(f, sp);
    pthread_mutex_unlock(&f->lock);
}

static int32_t find_arm(const struct facts *f, const struct record_arm *arm)
{
    for (int32_t i = 0; i < f->n_arms; i++)
        if (f->arms[i].arm.phase == arm->phase && !strcmp(f->arms[i].arm.label, arm->label))
            return i + 1;
    return 0;
}

/* Room for one more in a list that grows by doubling; NULL without memory. */
static void *grow(void *list, int32_t n, size_t bytes)
{
    return n & (n - 1) ? list : realloc(list, (n ? 2 * (size_t)n : 1) * bytes);
}

static int32_t add_arm(struct facts *f, const struct record_arm *arm)
{
    struct fact_arm *arms = f->n_arms < FACTS_ARMS ? grow(f->arms, f->n_arms, sizeof *arms) : NULL;
    if (!arms)
        return -1;
    f->arms = arms;
    arms[f->n_arms] = (struct fact_arm){*arm, false};
    arms[f->n_arms].arm.arm = f->n_arms + 1;
    atomic_store(&f->phases[f->n_arms + 1], (int8_t)arm->phase);
    return ++f->n_arms;
}

int32_t facts_arm(struct facts *f, struct spool *sp, const char *label, uint32_t phase,
                  const char *cls)
{
    struct record_arm arm = {.phase = phase};
    snprintf(arm.label, sizeof arm.label, "%s", label ? label : "");
    snprintf(arm.cls, sizeof arm.cls, "%s", cls ? cls : "");
    pthread_mutex_lock(&f->lock);
    int32_t number = find_arm(f, &arm);
    if (!number && (number = add_arm(f, &arm)) > 0)
        catch_up(f, sp);
    pthread_mutex_unlock(&f->lock);
    return number;
}

/* The setting of that name, made when it is new; NULL without room. */
static struct fact_setting *setting_of(struct facts *f, const char *name)
{
    for (int32_t i = 0; i < f->n_settings; i++)
        if (!strcmp(f->settings[i].name, name))
            return &f->settings[i];
    struct fact_setting *list =
        f->n_settings < FACTS_SETTINGS ? grow(f->settings, f->n_settings, sizeof *list) : NULL;
    if (!list)
        return NULL;
    f->settings = list;
    list[f->n_settings] = (struct fact_setting){.name = strdup(name)};
    return list[f->n_settings].name ? &list[f->n_settings++] : NULL;
}

void facts_setting(struct facts *f, struct spool *sp, const char *name, const char *value,
                   const char *source)
{
    pthread_mutex_lock(&f->lock);
    struct fact_setting *s = setting_of(f, name);
    char *copy = s ? strdup(value ? value : "") : NULL;
    if (copy) {
        free(s->value);
        s->value = copy;
        snprintf(s->source, sizeof s->source, "%s", source ? source : "api");
        s->recorded = false;
        catch_up(f, sp);
    } else {
        spool_lose(sp, LOST_RECORDS, 1);
        if (s && !s->value)
            f->n_settings--, free(s->name);
    }
    pthread_mutex_unlock(&f->lock);
}

void facts_forked(struct facts *f)
{
    for (int32_t i = 0; i < f->n_arms; i++)
        f->arms[i].recorded = false;
    for (int32_t i = 0; i < f->n_settings; i++)
        f->settings[i].recorded = false;
    atomic_store(&f->behind, f->n_arms + f->n_settings > 0);
}
