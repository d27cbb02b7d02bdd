/* What a run of libllama is described by: settings, models, vocabulary. Any thread. */
#ifndef NEARTIE_SHIM_LLAMA_FACTS_H
#define NEARTIE_SHIM_LLAMA_FACTS_H

#include "shim/llama_cache.h"
#include "shim/llama_lib.h"
#include "shim/probe.h"

/* Describe a context that is about to decode for the first time, its model too where that is new,
 * and number the model. The context's record is locked. */
void llama_facts_describe(const struct llama_lib *lib, struct llama_context *ctx, struct cache *c,
                          const struct probe_ops *ops);

/* The arm of a batch of a phase in this context. */
int32_t llama_facts_arm(const struct llama_lib *lib, const struct llama_context *ctx,
                        const struct cache *c, enum probe_phase phase, const struct probe_ops *ops);

#endif
