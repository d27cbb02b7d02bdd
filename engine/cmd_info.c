#include "config.h"

#include "engine/backend.h"
#include "engine/cmd.h"
#include "engine/gguf.h"
#include "engine/model.h"
#include "engine/record.h"
#include "err.h"
#include "kernels/quant.h"

#include <stdarg.h>
#include <string.h>

enum { OPT_FORMAT = 300, OPT_ARITHMETIC };
enum format { FORMAT_TABLE, FORMAT_JSON };
static const char *const formats[] = {"table", "json", NULL};

struct options {
    const char *model;
    enum format format;
    bool arithmetic;
};

/* Facts as they are printed: "name  value" lines, or members of one JSON object. */
struct facts {
    enum format format;
    int n;
};

__attribute__((format(printf, 3, 4))) static void fact(struct facts *f, const char *name,
                                                       const char *fmt, ...)
{
    char value[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(value, sizeof value, fmt, ap);
    va_end(ap);
    if (f->format == FORMAT_TABLE) {
        printf("%-19s %s\n", name, value);
    } else {
        printf("%s", f->n ? ",\n " : "{");
        json_string(stdout, name, strlen(name));
        putchar(':');
        json_string(stdout, value, strlen(value));
    }
    f->n++;
}

static void facts_end(const struct facts *f)
{
    if (f->format == FORMAT_JSON)
        puts("}");
}

/* ---- the model ---- */

/* "Q8_0 61, F32 47": tensors by weight type. */
static void type_counts(const struct gguf *g, char *out, size_t size)
{
    size_t count[QUANT_N_TYPES] = {0}, used = 0;
    for (size_t i = 0; i < gguf_n_tensors(g); i++)
        count[gguf_tensor_at(g, i)->type]++;
    out[0] = 0;
    for (uint32_t type = 0; type < QUANT_N_TYPES && used < size; type++)
        if (count[type])
            used += (size_t)snprintf(out + used, size - used, "%s%s %zu", used ? ", " : "",
                                     quant_find(type)->name, count[type]);
}

static void count_mixers(const struct model *m, int32_t counts[3])
{
    for (int32_t i = 0; i < m->hp.n_layers; i++)
        counts[m->layers[i].mixer]++;
}

static void layer_facts(struct facts *f, const struct model *m)
{
    const struct hparams *hp = &m->hp;
    int32_t n[3] = {0};
    count_mixers(m, n);
    fact(f, "layers", "%d: %d attention, %d gated attention, %d gated delta net", hp->n_layers,
         n[MIXER_ATTENTION], n[MIXER_GATED_ATTENTION], n[MIXER_DELTA_NET]);
    fact(f, "width", "%d, feed-forward %d", hp->n_embd, hp->n_ffn);
    fact(f, "heads", "%d of %d, keys and values %d", hp->n_heads, hp->head_dim, hp->n_kv_heads);
    if (n[MIXER_DELTA_NET])
        fact(f, "delta net", "%d value heads of %d, %d key heads of %d, convolution %d",
             hp->n_value_heads, hp->value_dim, hp->n_key_heads, hp->key_dim, hp->conv_width);
    if (hp->n_experts)
        fact(f, "experts", "%d of %d, each %d wide, shared %d", hp->n_experts_used, hp->n_experts,
             hp->n_ffn_expert, hp->n_ffn_shared);
    fact(f, "rotary", "%d of %d elements, base %g", hp->n_rot, hp->head_dim, hp->rope_base);
}

static void tokenizer_facts(struct facts *f, const struct tokenizer *t)
{
    if (!t) {
        fact(f, "tokenizer", "none");
        return;
    }
    fact(f, "tokenizer", "%s", tokenizer_describe(t));
    fact(f, "tokens", "%d, begin %d%s, end %d%s", tokenizer_n_vocab(t), tokenizer_bos(t),
         tokenizer_adds_bos(t) ? " (added)" : "", tokenizer_eos(t),
         tokenizer_adds_eos(t) ? " (added)" : "");
}

static void model_facts(struct facts *f, const struct session *s)
{
    const struct model *m = s->model;
    char types[256];
    struct gguf_str name = {"", 0};
    char buf[GGUF_NAME_MAX_BYTES + 4];
    if (gguf_has(s->gguf, "general.name"))
        gguf_get_str(s->gguf, "general.name", &name, NULL);
    type_counts(s->gguf, types, sizeof types);
    fact(f, "file", "%s", s->path);
    fact(f, "format", "GGUF %u, %zu bytes", gguf_version(s->gguf), gguf_size_bytes(s->gguf));
    fact(f, "name", "%s", gguf_printable(name, buf));
    fact(f, "architecture", "%s", m->arch);
    fact(f, "parameters", "%llu in %llu bytes", (unsigned long long)m->n_params,
         (unsigned long long)m->weight_bytes);
    fact(f, "tensors", "%zu: %s", gguf_n_tensors(s->gguf), types);
    if (m->n_skipped)
        fact(f, "note", "without MTP: %d tensors of multi-token prediction are not used",
             m->n_skipped);
    fact(f, "vocabulary", "%d", m->hp.n_vocab);
    fact(f, "context", "%d positions in training", m->hp.n_ctx_train);
    layer_facts(f, m);
    tokenizer_facts(f, s->tokenizer);
    fact(f, "hash", "%016llx", (unsigned long long)model_hash(m));
    fact(f, "backend", "%s", backend_describe(s->backend));
    fact(f, "hooks", "%s", record_describe());
}

/* ---- the arithmetic ---- */

static void knob_facts(struct facts *f, const struct session *s)
{
    char buf[64];
    for (int id = 0; id < N_KNOBS; id++) {
        const char *reason = knobs_not_engaged(&s->knobs, (enum knob)id, s->model);
        fact(f, knob_table[id].name, "%s (%s)%s%s", knobs_text(&s->knobs, id, buf, sizeof buf),
             knobs_source(&s->knobs, id), reason ? ", not engaged: " : "", reason ? reason : "");
    }
}

/* The form of an operator that the knobs choose, and what its rows depend on. */
static void operator_facts(struct facts *f, const struct knobs *knobs)
{
    enum op_form form = knobs->value[KNOB_REF]    ? FORM_F64
                        : knobs->value[KNOB_FAST] ? FORM_FAST
                                                  : FORM_F32;
    for (int op = 0; op < N_OPS; op++) {
        bool is_plain = form != FORM_F64 && ops[op].fn[form] == ops[op].fn[FORM_F32];
        fact(f, ops[op].name, "%s; %s",
             form == FORM_F64 ? "float64 accumulation"
             : is_plain       ? "float reference"
                              : kernels_isa(),
             ops[op].invariance == ROW_INVARIANT ? "a row does not depend on its batch"
                                                 : "a row depends on how its batch was cut");
    }
}

/* What leaves every logit bit-equal, and what does not. */
static void invariance_facts(struct facts *f)
{
    char cut[256] = "";
    for (int op = 0; op < N_OPS; op++)
        if (ops[op].invariance != ROW_INVARIANT) {
            size_t n = strlen(cut);
            snprintf(cut + n, sizeof cut - n, "%s%s", n ? ", " : "", ops[op].name);
        }
    const char *equal = "bit-equal", *by = cut[0] ? cut : equal;
    fact(f, "same run twice", "%s", equal);
    fact(f, "number of threads", "%s", equal);
    fact(f, "prefill chunk", "%s%s", cut[0] ? "depends on it: " : "", by);
    fact(f, "others in batch", "%s%s", cut[0] ? "depends on them: " : "", by);
    fact(f, "prefill, decode", "differ by design: tiled matrix products, matrix-vector products");
}

static void arithmetic_facts(struct facts *f, const struct session *s)
{
    knob_facts(f, s);
    operator_facts(f, &s->knobs);
    invariance_facts(f);
}

/* ---- command line ---- */

static const struct argp_option option_table[] = {
    {"format", OPT_FORMAT, "FORMAT", 0, "table (the default) or json", 0},
    {"arithmetic", OPT_ARITHMETIC, NULL, 0,
     "Print instead which knobs act on this model, the form of each operator, and what a result "
     "does not depend on",
     0},
    {0},
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case OPT_FORMAT:
        o->format = (enum format)option_word(state, "--format", arg, formats);
        return 0;
    case OPT_ARITHMETIC:
        o->arithmetic = true;
        return 0;
    case ARGP_KEY_ARG:
        if (o->model)
            return ARGP_ERR_UNKNOWN;
        o->model = arg;
        return 0;
    case ARGP_KEY_END:
        if (!o->model)
            argp_error(state, "no MODEL given");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static int run(int argc, char **argv, struct err *err)
{
    static const struct argp argp = {
        option_table, parse_option,        "MODEL", "Describe a model file.",
        NULL,         session_help_filter, NULL};
    struct options o = {0};
    struct session s = {0};
    argp_parse(&argp, argc, argv, 0, NULL, &o);
    struct facts f = {.format = o.format};
    int rc = session_open(&s, o.model, true, err);
    if (rc == 0) {
        (o.arithmetic ? arithmetic_facts : model_facts)(&f, &s);
        facts_end(&f);
    }
    session_close(&s);
    return rc;
}

const struct cmd cmd_info = {"info", "Describe a model file", run};
