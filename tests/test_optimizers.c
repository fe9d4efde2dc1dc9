/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=60 labels=asan
 *
 * Optimizers and schedules: closed forms, and many steps of each against the same in double; global norms.
 */
#include "ranks.h"
#include "train/optimizer.h"
#include "train/shuffle.h"
#include "train/tree.h"

#include <math.h>
#include <stdlib.h>

enum { SIZES = 5 };
static const size_t sizes[SIZES] = {1, 7, 64, 1000, 70001};

/* ---- Lists of tensors ------------------------------------------------------------------------------------------ */

struct tensors {
    tutti_parameter list[SIZES];
    float *values, *gradients;
    size_t elements;
};

static struct tensors tensors_make(uint64_t seed)
{
    struct tensors t = {0};
    for (int i = 0; i < SIZES; i++) t.elements += sizes[i];
    t.values = calloc(t.elements, sizeof(float));
    t.gradients = calloc(t.elements, sizeof(float));
    size_t at = 0;
    for (int i = 0; i < SIZES; i++) {
        t.list[i] = (tutti_parameter){"t", t.values + at, t.gradients + at, sizes[i], i % 2 == 0};
        at += sizes[i];
    }
    for (size_t i = 0; i < t.elements; i++) {
        t.values[i] = (float)(tti_draw_unit(seed, i) - 0.5);
        t.gradients[i] = (float)(tti_draw_unit(seed + 1, i) - 0.5);
    }
    return t;
}

static void tensors_free(struct tensors *t)
{
    free(t->values);
    free(t->gradients);
}

static tutti_optimizer *make(const char *name, const tutti_parameter *list, size_t count,
                             const tutti_optimizer_settings *given)
{
    tutti_optimizer_settings settings;
    tutti_optimizer *optimizer = NULL;
    tutti_error error;
    CHECK(tutti_optimizer_defaults(name, &settings, &error) == TUTTI_OK);
    if (given != NULL) settings = *given;
    CHECK(tutti_optimizer_create(&settings, list, count, &optimizer, &error) == TUTTI_OK);
    return optimizer;
}

/* ---- Closed forms ---------------------------------------------------------------------------------------------- */

/* Whatever the gradient, Adam's first step is the rate, against its sign (as far as epsilon is small beside it). */
static void test_first_adam_step(void)
{
    static const char *const names[] = {"adam", "adamw", "lion"};
    for (int n = 0; n < 3; n++) {
        float value[3] = {1, 2, 3}, gradient[3] = {0.001F, -50, 3};
        tutti_parameter one = {"w", value, gradient, 3, false};
        tutti_optimizer *optimizer = make(names[n], &one, 1, NULL);
        tutti_optimizer_step(optimizer, 0.01, 1);
        CHECK(fabs(value[0] - 0.99) < 1e-6 && fabs(value[1] - 2.01) < 1e-6 && fabs(value[2] - 2.99) < 1e-6);
        CHECK(tutti_optimizer_steps(optimizer) == 1);
        tutti_optimizer_free(optimizer);
    }
}

/* Heavy ball on f(w) = k w² / 2: w(t+1) = (1 + m - rate k) w(t) - m w(t-1), a linear recurrence with two roots. */
static void test_momentum_on_quadratic(void)
{
    const double k = 2, rate = 0.1, m = 0.5;
    double sum = 1 + m - rate * k, root = sqrt(sum * sum - 4 * m + 0 * k > 0 ? sum * sum - 4 * m : 0);
    float value = 1, gradient;
    tutti_parameter one = {"w", &value, &gradient, 1, false};
    tutti_optimizer_settings settings = {.struct_size = sizeof settings, .name = "sgd", .momentum = m};
    tutti_optimizer *optimizer = make("sgd", &one, 1, &settings);
    double before = 1, now = 1;
    for (int t = 0; t < 40; t++) {
        double next = sum * now - m * before;
        if (t == 0) next = now - rate * k * now;
        gradient = (float)(k * (double)value);
        tutti_optimizer_step(optimizer, rate, 1);
        CHECK(fabs((double)value - next) < 1e-6);
        before = now;
        now = next;
    }
    CHECK(root == 0 && fabs(now) < 1e-4); /* complex roots of size sqrt(m): it spirals in */
    tutti_optimizer_free(optimizer);
}

/* Gradient descent on least squares, w -= rate (w - c), leaves (1 - rate)^t of the distance. */
static void test_least_squares(void)
{
    float value = 5, gradient;
    tutti_parameter one = {"w", &value, &gradient, 1, false};
    tutti_optimizer_settings settings = {.struct_size = sizeof settings, .name = "sgd"};
    tutti_optimizer *optimizer = make("sgd", &one, 1, &settings);
    for (int t = 1; t <= 30; t++) {
        gradient = 3 * (value - 2); /* the sum over 3 samples; scale makes it their mean */
        tutti_optimizer_step(optimizer, 0.25, 1.0 / 3);
        CHECK(fabs((double)value - (2 + 3 * pow(0.75, t))) < 1e-5);
    }
    tutti_optimizer_free(optimizer);
}

/* Decay alone: w shrinks by (1 - rate decay) each step. */
static void test_decay(void)
{
    float value[2] = {1, 1}, gradient[2] = {0, 0};
    tutti_parameter list[2] = {{"w", value, gradient, 1, true}, {"b", value + 1, gradient + 1, 1, false}};
    tutti_optimizer *optimizer = make("adamw", list, 2, NULL);
    for (int t = 0; t < 10; t++) tutti_optimizer_step(optimizer, 0.1, 1);
    CHECK(fabs(value[0] - pow(1 - 0.1 * 0.1, 10)) < 1e-6 && value[1] == 1);
    tutti_optimizer_free(optimizer);
}

/* ---- Against double -------------------------------------------------------------------------------------------- */

struct reference {
    double value, first, second;
};

static void reference_step(const tutti_optimizer_settings *s, struct reference *r, double gradient, double rate,
                           double decay, int step)
{
    double g = gradient, b1 = s->beta1, b2 = s->beta2;
    bool adamw = strcmp(s->name, "adamw") == 0, lion = strcmp(s->name, "lion") == 0;
    if (strcmp(s->name, "sgd") == 0) {
        g += decay * r->value;
        r->first = s->momentum * r->first + g;
        r->value -= rate * (s->nesterov ? g + s->momentum * r->first : r->first);
        return;
    }
    if (lion) {
        double c = b1 * r->first + (1 - b1) * g;
        r->value -= rate * (decay * r->value + (c > 0) - (c < 0));
        r->first = b2 * r->first + (1 - b2) * g;
        return;
    }
    if (adamw)
        r->value -= rate * decay * r->value;
    else
        g += decay * r->value;
    r->first = b1 * r->first + (1 - b1) * g;
    r->second = b2 * r->second + (1 - b2) * g * g;
    double m = r->first / (1 - pow(b1, step)), v = r->second / (1 - pow(b2, step));
    r->value -= rate * m / (sqrt(v) + s->epsilon);
}

static void test_against_double(const char *name, bool nesterov, const char *kernels, uint64_t *hash)
{
    struct tensors t = tensors_make(7);
    tutti_optimizer_settings settings;
    tutti_error error;
    CHECK(tti_kernels_force(kernels));
    CHECK(tutti_optimizer_defaults(name, &settings, &error) == TUTTI_OK);
    settings.nesterov = nesterov;
    settings.decay = 0.05;
    tutti_optimizer *optimizer = make(name, t.list, SIZES, &settings);
    struct reference *references = calloc(t.elements, sizeof *references);
    for (size_t i = 0; i < t.elements; i++) references[i].value = (double)t.values[i];
    for (int step = 1; step <= 10; step++) {
        for (size_t i = 0; i < t.elements; i++)
            t.gradients[i] = (float)(tti_draw_unit((uint64_t)step, i) - 0.4) + t.values[i];
        for (size_t i = 0; i < t.elements; i++) {
            bool decays = t.values + i < t.list[1].value ||
                          (t.values + i >= t.list[2].value && t.values + i < t.list[3].value) ||
                          t.values + i >= t.list[4].value;
            reference_step(&settings, &references[i], (double)t.gradients[i] * 0.5, 0.01, decays ? 0.05 : 0, step);
        }
        tutti_optimizer_step(optimizer, 0.01, 0.5);
    }
    size_t wrong = 0;
    for (size_t i = 0; i < t.elements; i++) wrong += !(fabs(references[i].value - (double)t.values[i]) < 2e-6);
    CHECK(wrong == 0);
    *hash = tutti_weights_hash(t.list, SIZES);
    free(references);
    tutti_optimizer_free(optimizer);
    tensors_free(&t);
    tti_kernels_force(NULL);
}

static void test_all_against_double(void)
{
    static const char *const sets[] = {"portable", "avx2", "avx512"};
    for (size_t n = 0; tutti_optimizer_names(n) != NULL; n++) {
        uint64_t first = 0, hash = 0;
        for (int s = 0; s < 3; s++) {
            if (!tti_kernels_force(sets[s])) continue;
            test_against_double(tutti_optimizer_names(n), n == 0, sets[s], &hash);
            if (s == 0) first = hash;
            CHECK(hash == first);
        }
    }
    uint64_t hash;
    test_against_double("sgd", false, "portable", &hash);
}

/* ---- Norms and trees ------------------------------------------------------------------------------------------- */

static void test_norm(void)
{
    struct tensors t = tensors_make(3);
    double squares = 0, norm = 0, again = 0;
    for (size_t i = 0; i < t.elements; i++) squares += (double)t.gradients[i] * (double)t.gradients[i];
    CHECK(tutti_gradient_norm(NULL, t.list, SIZES, &norm) == TUTTI_OK && fabs(norm - sqrt(squares)) < 1e-9);
    CHECK(tti_kernels_force("portable") && tutti_gradient_norm(NULL, t.list, SIZES, &again) == TUTTI_OK);
    tti_kernels_force(NULL);
    CHECK(memcmp(&norm, &again, sizeof norm) == 0);
    tensors_free(&t);
}

static void test_tree(void)
{
    double ones[100];
    for (int i = 0; i < 100; i++) ones[i] = 1;
    for (size_t n = 0; n <= 100; n++) CHECK(tti_tree_sum(ones, n) == (double)n);
    double values[3] = {1e16, 1, 1}; /* (a + b) + c */
    CHECK(tti_tree_sum(values, 3) == (1e16 + 1) + 1);
    for (size_t n = 1; n <= 40; n++)
        for (int parts = 1; parts <= 9; parts++) {
            size_t at = 0;
            for (int p = 0; p < parts; p++) {
                struct tti_span span = tti_tree_share(n, p, parts);
                CHECK(span.lo == at && span.hi - span.lo <= n / (size_t)parts + 1);
                at = span.hi;
            }
            CHECK(at == n);
        }
}

/* ---- Schedules and refusals ------------------------------------------------------------------------------------ */

static void test_schedules(void)
{
    tutti_error error;
    tutti_schedule s = {.shape = "cosine", .rate = 1, .end = 0.1, .warmup = 10, .steps = 110};
    CHECK(tutti_schedule_check(&s, &error) == TUTTI_OK);
    CHECK(fabs(tutti_schedule_rate(&s, 0) - 0.1) < 1e-12 && fabs(tutti_schedule_rate(&s, 9) - 1) < 1e-12);
    CHECK(fabs(tutti_schedule_rate(&s, 10) - 1) < 1e-12 && fabs(tutti_schedule_rate(&s, 60) - 0.55) < 1e-12);
    CHECK(fabs(tutti_schedule_rate(&s, 110) - 0.1) < 1e-12 && fabs(tutti_schedule_rate(&s, 1000) - 0.1) < 1e-12);
    s.shape = "linear";
    CHECK(fabs(tutti_schedule_rate(&s, 35) - (0.1 + 0.9 * 0.75)) < 1e-12);
    s.shape = "constant";
    CHECK(tutti_schedule_rate(&s, 50) == 1);
    s.shape = "square";
    CHECK(tutti_schedule_check(&s, &error) == TUTTI_ERR_OPTION && strstr(error.text, "\"square\"") != NULL);
    static const double bad[][2] = {{0, 0}, {-1, 0}, {NAN, 0}, {INFINITY, 0}, {1, -0.1}, {1, 1.1}, {1, NAN}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        s = (tutti_schedule){.shape = "linear", .rate = bad[i][0], .end = bad[i][1]};
        CHECK(tutti_schedule_check(&s, &error) == TUTTI_ERR_ARGUMENT);
    }
}

static void test_refusals(void)
{
    float value = 0;
    tutti_parameter one = {"w", &value, &value, 1, false};
    tutti_optimizer_settings settings;
    tutti_optimizer *optimizer = NULL;
    tutti_error error;
    CHECK(tutti_optimizer_defaults("adamx", &settings, &error) == TUTTI_ERR_OPTION);
    CHECK(strstr(error.text, "\"adamx\"") != NULL && strstr(error.text, "lion") != NULL);
    CHECK(tutti_optimizer_defaults("adam", &settings, &error) == TUTTI_OK);
    const tutti_optimizer_settings good = settings;
    double *const fractions[] = {&settings.beta1, &settings.beta2, &settings.momentum};
    double *const numbers[] = {&settings.epsilon, &settings.decay};
    static const double no_fractions[] = {1, -0.1, NAN}, no_numbers[] = {-1, NAN, INFINITY};
    for (int i = 0; i < 15; i++) {
        settings = good;
        *(i < 9 ? fractions[i / 3] : numbers[i / 3 - 3]) = i < 9 ? no_fractions[i % 3] : no_numbers[i % 3];
        CHECK(tutti_optimizer_create(&settings, &one, 1, &optimizer, &error) == TUTTI_ERR_ARGUMENT);
        CHECK(optimizer == NULL);
    }
}

int main(void)
{
    test_first_adam_step();
    test_momentum_on_quadratic();
    test_least_squares();
    test_decay();
    test_all_against_double();
    test_norm();
    test_tree();
    test_schedules();
    test_refusals();
    return check_end();
}
