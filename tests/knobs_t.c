/* The knobs: defaults, parsing, and a message with the allowed values for everything refused. */
#include "config.h"

#include "engine/knobs.h"
#include "err.h"
#include "tests/tap.h"

static struct err err;

static void is_value(const struct knobs *k, enum knob id, const char *want, const char *when)
{
    char buf[32];
    is_str(knobs_text(k, id, buf, sizeof buf), want, "%s is %s %s", knob_table[id].name, want,
           when);
}

static void is_refused(const char *name, const char *value, const char *want)
{
    struct knobs k;
    knobs_init(&k);
    is_int(knobs_set(&k, name, value, &err), -1, "%s=%s is refused", name, value);
    is_str(err.text, want, "with the reason");
    is_value(&k, KNOB_FAST, "1", "after a refusal");
}

static void test_environment(void)
{
    struct knobs k;
    setenv("NEARTIE_FAST", "0", 1);
    is_int(knobs_from_env(&k, &err), 0, "NEARTIE_FAST=0 is read");
    is_value(&k, KNOB_FAST, "0", "from the environment");
    is_value(&k, KNOB_KV, "f32", "where FAST is 0");
    is_str(knobs_source(&k, KNOB_FAST), "env", "its source is the environment");
    is_str(knobs_source(&k, KNOB_KV), "default", "a derived default is a default");
    setenv("NEARTIE_FAST", "yes", 1);
    is_int(knobs_from_env(&k, &err), -1, "NEARTIE_FAST=yes is refused");
    is_str(err.text, "NEARTIE_FAST=yes: not allowed; allowed: 0 or 1", "with the allowed values");
    setenv("NEARTIE_FAST", "", 1);
    is_int(knobs_from_env(&k, &err), -1, "an empty value is refused");
    unsetenv("NEARTIE_FAST");
}

int main(void)
{
    struct knobs k;
    for (int id = 0; id < N_KNOBS; id++)
        unsetenv(knob_table[id].name);
    is_int(knobs_from_env(&k, &err), 0, "an empty environment is fine");
    is_value(&k, KNOB_FAST, "1", "by default");
    is_value(&k, KNOB_KV, "f16", "by default");
    is_value(&k, KNOB_PRIME_CHUNK, "0", "by default");
    is_value(&k, KNOB_FA_SPLIT, "0", "by default");
    test_environment();

    knobs_init(&k);
    is_int(knobs_set(&k, "NEARTIE_KV", "f32", &err), 0, "a full name is known");
    is_value(&k, KNOB_KV, "f32", "once set");
    is_int(knobs_set(&k, "KV", "q8_0", &err), 0, "so is a short one");
    is_value(&k, KNOB_KV, "q8_0", "once set");
    is_int(knobs_set(&k, "REF", "1", &err), 0, "REF=1 is set");
    is_value(&k, KNOB_FAST, "0", "under REF=1");
    is_value(&k, KNOB_KV, "q8_0", "when it was set before REF");

    is_refused("KV", "f64", "NEARTIE_KV=f64: not allowed; allowed: f16, f32 or q8_0");
    is_refused(
        "FA_SPLIT", "1025",
        "NEARTIE_FA_SPLIT=1025: not allowed; allowed: 1 to 1024, 0 = by the context's length");
    is_refused("PRIME_CHUNK", "-1",
               "NEARTIE_PRIME_CHUNK=-1: not allowed; allowed: tokens, 0 = the whole prompt");
    is_refused("PRIME_CHUNK", "8x",
               "NEARTIE_PRIME_CHUNK=8x: not allowed; allowed: tokens, 0 = the whole prompt");
    is_refused("SLOW", "1", "SLOW: no such knob");
    knobs_init(&k);
    is_int(knobs_set(&k, "FAST", "1", &err), 0, "FAST=1 is set");
    is_int(knobs_set(&k, "REF", "1", &err), -1, "REF=1 then contradicts it");
    is_str(err.text, "NEARTIE_REF=1: cannot be combined with NEARTIE_FAST=1", "and says so");
    knobs_init(&k);
    is_int(knobs_set(&k, "FAST", "0", &err), 0, "FAST=0 is set");
    is_int(knobs_set(&k, "Q80_G2", "1", &err), -1, "Q80_G2=1 then has nothing to act on");
    is_str(err.text, "NEARTIE_Q80_G2=1: needs NEARTIE_FAST=1, got NEARTIE_FAST=0", "and says so");
    return tap_done();
}
