/* Prints where each member of probe.h's structs stands, a line each, `STRUCT MEMBER OFFSET SIZE`,
 * for the test of the Python module that declares the same. */
#include <stdio.h>

#include "shim/probe.h"

#define MEMBER(type, member)                                                                       \
    printf("%s %s %zu %zu\n", #type, #member, offsetof(struct type, member),                       \
           sizeof(((struct type *)0)->member));
#define END(type) printf("%s end %zu 0\n", #type, sizeof(struct type));

int main(void)
{
    MEMBER(probe_forward, struct_size)
    MEMBER(probe_forward, arm)
    MEMBER(probe_forward, n_tokens)
    MEMBER(probe_forward, n_seqs)
    MEMBER(probe_forward, n_past)
    MEMBER(probe_forward, ubatch_index)
    MEMBER(probe_forward, n_ubatch)
    END(probe_forward)
    MEMBER(probe_row, context_hash)
    MEMBER(probe_row, seq)
    MEMBER(probe_row, pos)
    MEMBER(probe_row, input_token)
    MEMBER(probe_row, batch_row)
    END(probe_row)
    MEMBER(probe_logits, struct_size)
    MEMBER(probe_logits, location)
    MEMBER(probe_logits, dtype)
    MEMBER(probe_logits, n_rows)
    MEMBER(probe_logits, n_vocab)
    MEMBER(probe_logits, row_stride)
    MEMBER(probe_logits, data)
    MEMBER(probe_logits, stream)
    MEMBER(probe_logits, rows)
    END(probe_logits)
    MEMBER(probe_ops, abi_version)
    MEMBER(probe_ops, struct_size)
    MEMBER(probe_ops, run_setting)
    MEMBER(probe_ops, arm)
    MEMBER(probe_ops, sequence)
    MEMBER(probe_ops, context_hash)
    MEMBER(probe_ops, forward_begin)
    MEMBER(probe_ops, logits)
    MEMBER(probe_ops, forward_end)
    MEMBER(probe_ops, token)
    MEMBER(probe_ops, graph)
    MEMBER(probe_ops, vocab)
    MEMBER(probe_ops, kernels)
    END(probe_ops)
    return 0;
}
