/* The wrappers of libllama's sampling: they tell the hooks which token was chosen after a row. */
#ifndef NEARTIE_SHIM_LLAMA_SAMPLE_H
#define NEARTIE_SHIM_LLAMA_SAMPLE_H

/* The row that this thread has read last is not sampled from any more. */
void llama_sample_reset(void);

#endif
