/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of optimizers, and their common parts: state, the step over all tensors, rate schedules.
 */
#include "train/optimizer.h"

#include "base/alloc.h"
#include "base/status.h"
#include "nn/pass.h"
#include "train/parameter_list.h"
#include <math.h>

static const struct tti_optimizer_row *const rows[] = {
    &tti_optimizer_sgd,
    &tti_optimizer_adam,
    &tti_optimizer_adamw,
    &tti_optimizer_lion,
};
enum { ROWS = sizeof rows / sizeof rows[0] };

struct tutti_optimizer {
    const struct tti_optimizer_row *row;
    tutti_optimizer_settings settings;
    const tutti_parameter *parameters; /* [count], owned by the caller */
    size_t count, elements;
    uint64_t step;                       /* steps taken so far */
    float *states[TTI_OPTIMIZER_STATES]; /* each [elements], in the parameters' order */
};

static const struct tti_optimizer_row *find_row(const char *name)
{
    for (size_t i = 0; name != NULL && i < ROWS; i++)
        if (strcmp(rows[i]->name, name) == 0) return rows[i];
    return NULL;
}

const char *tutti_optimizer_names(size_t index)
{
    return index < ROWS ? rows[index]->name : NULL;
}

static tutti_status refuse_name(const char *name, tutti_error *error)
{
    char names[256] = "";
    for (size_t i = 0; i < ROWS; i++) {
        const char *between = i == 0 ? "" : i + 1 < ROWS ? ", " : " and ";
        size_t used = strlen(names);
        (void)snprintf(names + used, sizeof names - used, "%s%s", between, rows[i]->name);
    }
    return tti_error_set(error, TUTTI_ERR_OPTION, 0, "there is no optimizer \"%.32s\"; there are %s",
                         name == NULL ? "" : name, names);
}

tutti_status tutti_optimizer_defaults(const char *name, tutti_optimizer_settings *settings, tutti_error *error)
{
    const struct tti_optimizer_row *row = find_row(name);
    if (row == NULL) return refuse_name(name, error);
    if (settings == NULL) return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "no place for the settings is given");
    *settings = row->defaults;
    return TUTTI_OK;
}

static tutti_status check_settings(const tutti_optimizer_settings *s, tutti_error *error)
{
    bool betas = s->beta1 >= 0 && s->beta1 < 1 && s->beta2 >= 0 && s->beta2 < 1;
    if (!betas || !(s->momentum >= 0 && s->momentum < 1))
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                             "%s: beta1 %g, beta2 %g and momentum %g must be at least 0 and below 1", s->name, s->beta1,
                             s->beta2, s->momentum);
    if (!(s->epsilon >= 0) || !(s->decay >= 0) || !isfinite(s->epsilon) || !isfinite(s->decay))
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "%s: epsilon %g and decay %g must be 0 or more", s->name,
                             s->epsilon, s->decay);
    return TUTTI_OK;
}

tutti_status tutti_optimizer_create(const tutti_optimizer_settings *settings, const tutti_parameter *parameters,
                                    size_t count, tutti_optimizer **optimizer, tutti_error *error)
{
    size_t elements;
    if (settings == NULL || optimizer == NULL)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "an optimizer needs settings and a place to go");
    const struct tti_optimizer_row *row = find_row(settings->name);
    if (row == NULL) return refuse_name(settings->name, error);
    TTI_TRY(check_settings(settings, error));
    TTI_TRY(tti_list_check(parameters, count, &elements, error));
    tutti_optimizer *made = tti_calloc(1, sizeof *made);
    if (made == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory for an optimizer");
    *made = (tutti_optimizer){
        .row = row, .settings = *settings, .parameters = parameters, .count = count, .elements = elements};
    made->settings.name = row->name;
    for (int i = 0; i < row->state_count; i++) {
        made->states[i] = tti_calloc_aligned((made->elements + 1) * sizeof(float));
        if (made->states[i] == NULL) {
            size_t bytes = made->elements * sizeof(float);
            tutti_optimizer_free(made);
            return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory for the state of %s: %zu bytes more are needed",
                                 settings->name, bytes);
        }
    }
    *optimizer = made;
    return TUTTI_OK;
}

void tutti_optimizer_free(tutti_optimizer *optimizer)
{
    if (optimizer == NULL) return;
    for (int i = 0; i < TTI_OPTIMIZER_STATES; i++) tti_free(optimizer->states[i]);
    tti_free(optimizer);
}

/* One step, which threads share. */
struct step {
    const tutti_optimizer *optimizer;
    tti_update_kernel *kernel;
    struct tti_update updates[2]; /* [decays or not] */
};

static struct step step_begin(tutti_optimizer *optimizer, double rate, double scale)
{
    const struct tti_optimizer_row *row = optimizer->row;
    const tutti_optimizer_settings *settings = &optimizer->settings;
    struct step step = {.optimizer = optimizer, .kernel = row->kernels[tti_set_now()]};
    optimizer->step++;
    row->prepare(settings, optimizer->step, rate, scale, 0, &step.updates[0]);
    row->prepare(settings, optimizer->step, rate, scale, settings->decay, &step.updates[1]);
    return step;
}

/* Makes the step for the elements from `from` to `to`, counted over all parameters. */
static void step_run(const struct step *step, size_t from, size_t to)
{
    const tutti_optimizer *optimizer = step->optimizer;
    float *const *states = optimizer->states;
    size_t at = 0;
    for (size_t i = 0; i < optimizer->count && at < to; at += optimizer->parameters[i++].count) {
        const tutti_parameter *p = &optimizer->parameters[i];
        const size_t lo = from > at ? from : at, hi = to < at + p->count ? to : at + p->count;
        if (lo >= hi) continue;
        step->kernel(&step->updates[p->decays != 0], p->value + (lo - at), p->gradient + (lo - at), states[0] + lo,
                     states[1] == NULL ? NULL : states[1] + lo, hi - lo);
    }
}

static void step_body(void *context, int thread, int threads)
{
    const struct step *step = context;
    int64_t from, to;
    tutti_part_range((int64_t)step->optimizer->elements, thread, threads, &from, &to);
    step_run(step, (size_t)from, (size_t)to);
}

void tutti_optimizer_step(tutti_optimizer *optimizer, double rate, double scale)
{
    const struct step step = step_begin(optimizer, rate, scale);
    step_run(&step, 0, optimizer->elements);
}

void tutti_optimizer_step_on(tutti_optimizer *optimizer, tutti_pass *pass, double rate, double scale)
{
    struct step step = step_begin(optimizer, rate, scale);
    tti_pool_run(pass->pool, step_body, &step);
}

uint64_t tutti_optimizer_steps(const tutti_optimizer *optimizer)
{
    return optimizer->step;
}

void tutti_optimizer_set_steps(tutti_optimizer *optimizer, uint64_t steps)
{
    optimizer->step = steps;
}

const char *tutti_optimizer_state(const tutti_optimizer *optimizer, int index, float **values)
{
    if (index < 0 || index >= optimizer->row->state_count) return NULL;
    if (values != NULL) *values = optimizer->states[index];
    return optimizer->row->state_names[index];
}

const tutti_optimizer_settings *tutti_optimizer_get(const tutti_optimizer *optimizer)
{
    return &optimizer->settings;
}

tutti_status tti_optimizer_plan(const char *name, size_t elements, size_t *bytes, tutti_error *error)
{
    const struct tti_optimizer_row *row = find_row(name);
    if (row == NULL) return refuse_name(name, error);
    *bytes = (size_t)row->state_count * elements * sizeof(float);
    return TUTTI_OK;
}

const char *tti_optimizer_state_name(const char *name, int number)
{
    const struct tti_optimizer_row *row = find_row(name);
    return row == NULL || number >= row->state_count ? NULL : row->state_names[number];
}

size_t tutti_optimizer_bytes(const tutti_optimizer *optimizer)
{
    return (size_t)optimizer->row->state_count * optimizer->elements * sizeof(float);
}

/* ---- Schedules ------------------------------------------------------------------------------------------------- */

static double fall_constant(double done)
{
    (void)done;
    return 1;
}

static double fall_linear(double done)
{
    return 1 - done;
}

static double fall_cosine(double done)
{
    return 0.5 * (1 + cos(done * 3.14159265358979323846));
}

/* Returns the part of the rate between its peak and its end that remains, by how much of the way is done. */
static const struct {
    const char *name;
    double (*fall)(double done);
} schedules[] = {
    {"constant", fall_constant},
    {"linear", fall_linear},
    {"cosine", fall_cosine},
};

double tutti_schedule_rate(const tutti_schedule *schedule, uint64_t step)
{
    if (step < schedule->warmup) return schedule->rate * (double)(step + 1) / (double)schedule->warmup;
    double length = schedule->steps > schedule->warmup ? (double)(schedule->steps - schedule->warmup) : 1;
    double done = (double)(step - schedule->warmup) / length;
    for (size_t i = 0; i < sizeof schedules / sizeof schedules[0]; i++) {
        if (strcmp(schedules[i].name, schedule->shape) != 0) continue;
        return schedule->end + (schedule->rate - schedule->end) * schedules[i].fall(done < 1 ? done : 1);
    }
    return NAN;
}

tutti_status tutti_schedule_check(const tutti_schedule *schedule, tutti_error *error)
{
    if (schedule == NULL || schedule->shape == NULL)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "a schedule needs a shape: constant, linear or cosine");
    if (!(schedule->rate > 0) || !isfinite(schedule->rate) || !(schedule->end >= 0) || schedule->end > schedule->rate)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                             "the rate %g must be above 0, and its end %g between 0 and the rate", schedule->rate,
                             schedule->end);
    if (isnan(tutti_schedule_rate(schedule, schedule->warmup)))
        return tti_error_set(error, TUTTI_ERR_OPTION, 0,
                             "there is no schedule \"%.32s\"; there are constant, linear and cosine", schedule->shape);
    return TUTTI_OK;
}
