#include "config.h"

#include "collector/report.h"

static void render_id(struct render *r, int32_t id)
{
    if (id < 0)
        render_null(r);
    else
        render_int(r, id);
}

void report_print_rows(FILE *out, enum render_format format, const struct window *window)
{
    static const char *const names[] = {"pos",     "top1_a", "top2_a",   "margin_a",
                                        "top1_b",  "top2_b", "margin_b", "delta",
                                        "bounded", "bad",    "agree"};
    struct render *r = render_open(out, format, 4, sizeof names / sizeof *names, names);
    for (int i = 0; i < window->n; i++) {
        const struct seed_row *row = window->rows + i;
        render_int(r, row->pos);
        render_id(r, row->a1);
        render_id(r, row->a2);
        render_real(r, row->margin_a);
        render_id(r, row->b1);
        render_id(r, row->b2);
        render_real(r, row->margin_b);
        render_real(r, row->delta);
        render_int(r, row->bounded);
        render_int(r, row->bad);
        render_int(r, row->a1 == row->b1);
    }
    render_close(r);
}

static void print_figures(struct render *r, const struct seed_summary *sum)
{
    const double reals[] = {sum->a_min, sum->a_p50, sum->a_max, sum->b_min,
                            sum->b_p10, sum->b_p50, sum->b_p90, sum->b_max};
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        render_real(r, reals[i]);
    render_int(r, sum->decision.pos);
    render_id(r, sum->decision.a1);
    render_id(r, sum->decision.b1);
    render_real(r, sum->decision.margin_a);
    render_real(r, sum->decision.margin_b);
    render_real(r, sum->decision.delta);
    render_int(r, sum->n_below + 1);
    render_int(r, sum->possible);
}

void report_print_record(FILE *out, enum render_format format, const struct selection *sel,
                         const struct window *window)
{
    static const char *const names[] = {"rule",
                                        "class",
                                        "defect",
                                        "reason",
                                        "arm_a",
                                        "arm_b",
                                        "seq_id",
                                        "positions",
                                        "flips",
                                        "nonfinite",
                                        "margin_a_min",
                                        "margin_a_p50",
                                        "margin_a_max",
                                        "margin_b_min",
                                        "margin_b_p10",
                                        "margin_b_p50",
                                        "margin_b_p90",
                                        "margin_b_max",
                                        "decision_pos",
                                        "decision_a",
                                        "decision_b",
                                        "decision_margin_a",
                                        "decision_margin_b",
                                        "decision_delta",
                                        "rank",
                                        "flip_possible"};
    const struct seed_summary *sum = &window->summary;
    struct render *r = render_open(out, format, 4, sizeof names / sizeof *names, names);
    render_text(r, "seed", -1);
    render_text(r, seed_class_name(sum->cls), -1);
    render_int(r, seed_is_defect(sum->cls));
    render_text(r, seed_class_reason(sum->cls), -1);
    render_text(r, window->name_a, -1);
    render_text(r, window->name_b, -1);
    render_int(r, sel->seq_id);
    render_int(r, sum->n);
    render_int(r, sum->n_flips);
    render_int(r, sum->n_bad);
    print_figures(r, sum);
    render_close(r);
}

void report_print_verdict(FILE *out, enum render_format format, const struct selection *sel,
                          const struct window *window)
{
    struct seed_names names = window_names(window);
    if (format == RENDER_TABLE)
        seed_print_summary(out, &names, &window->summary);
    else
        report_print_record(out, format, sel, window);
}
