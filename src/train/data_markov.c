/* SPDX-License-Identifier: Apache-2.0
 *
 * An artificial language whose entropy is known: "markov:order=2,states=64,length=1000000,seed=1".
 *
 * After each context of `order` tokens, one of BRANCHES likely tokens follows, or with probability STRAY any token at
 * all, so that every context can be reached from every other. The entropy rate is the mean entropy of the token after a
 * context, over the stationary distribution of contexts, which is found by following the chain from the uniform one
 * until it no longer changes. No model can predict held-out tokens better than that.
 */
#include "train/data.h"

#include "base/alloc.h"
#include "base/status.h"
#include "train/shuffle.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BRANCHES = 4, CONTEXTS_MOST = 1 << 18 };
static const double STRAY = 0.125;

struct markov {
    uint64_t order, states, length, seed;
    size_t contexts;  /* states ^ order */
    uint16_t *tokens; /* [length] */
};

struct branches {
    size_t state[BRANCHES];
    double chance[BRANCHES]; /* their sum is 1 - STRAY */
};

static struct branches branches_of(const struct markov *m, size_t context)
{
    struct branches b;
    double sum = 0;
    for (size_t i = 0; i < BRANCHES; i++) {
        uint64_t place = (uint64_t)context * BRANCHES + i;
        b.state[i] = (size_t)(tti_draw(m->seed, place) % m->states);
        b.chance[i] = 0.1 + tti_draw_unit(m->seed + 1, place);
        sum += b.chance[i];
    }
    for (size_t i = 0; i < BRANCHES; i++) b.chance[i] *= (1 - STRAY) / sum;
    return b;
}

static size_t follow(const struct markov *m, size_t context, size_t state)
{
    return (context * (size_t)m->states + state) % m->contexts;
}

/* ---- Entropy --------------------------------------------------------------------------------------------------- */

/* Computes `next`, one step of the chain from `now`. The stray parts of all contexts with the same tail go to the same
 * contexts, so they are spread once per tail: there are contexts / states tails, each followed by any state. */
static double advance(const struct markov *m, const double *now, double *next)
{
    size_t tails = m->contexts / (size_t)m->states;
    for (size_t tail = 0; tail < tails; tail++) {
        double mass = 0;
        for (size_t head = 0; head < m->states; head++) mass += now[head * tails + tail];
        for (size_t s = 0; s < m->states; s++) next[tail * (size_t)m->states + s] = mass * STRAY / (double)m->states;
    }
    for (size_t c = 0; c < m->contexts; c++) {
        struct branches b = branches_of(m, c);
        for (size_t i = 0; i < BRANCHES; i++) next[follow(m, c, b.state[i])] += now[c] * b.chance[i];
    }
    double moved = 0;
    for (size_t c = 0; c < m->contexts; c++) moved += fabs(next[c] - now[c]);
    return moved;
}

static double entropy_after(const struct markov *m, size_t context)
{
    struct branches b = branches_of(m, context);
    double stray = STRAY / (double)m->states, sum = 0;
    size_t likely = 0;
    for (size_t i = 0; i < BRANCHES; i++) {
        double p = stray;
        bool again = false; /* the same state may be drawn twice */
        for (size_t j = 0; j < BRANCHES; j++) {
            if (b.state[j] != b.state[i]) continue;
            p += b.chance[j];
            again |= j < i;
        }
        if (again) continue;
        likely++;
        sum -= p * log(p);
    }
    return sum - (double)(m->states - likely) * stray * log(stray);
}

static bool find_entropy(const struct markov *m, double *entropy)
{
    double *now = tti_calloc(m->contexts, sizeof *now), *next = tti_calloc(m->contexts, sizeof *next);
    bool found = now != NULL && next != NULL;
    for (size_t c = 0; found && c < m->contexts; c++) now[c] = 1 / (double)m->contexts;
    for (int i = 0; found && i < 10000; i++) {
        double moved = advance(m, now, next), *swap = now;
        now = next;
        next = swap;
        if (moved < 1e-12) break;
    }
    *entropy = 0;
    for (size_t c = 0; found && c < m->contexts; c++) *entropy += now[c] * entropy_after(m, c);
    tti_free(now);
    tti_free(next);
    return found;
}

/* ---- Tokens ---------------------------------------------------------------------------------------------------- */

static size_t draw_state(const struct markov *m, size_t context, uint64_t place)
{
    double u = tti_draw_unit(m->seed + 2, place);
    if (u < STRAY) return (size_t)(u / STRAY * (double)m->states);
    struct branches b = branches_of(m, context);
    u -= STRAY;
    size_t i = 0;
    while (i + 1 < BRANCHES && u >= b.chance[i]) u -= b.chance[i++];
    return b.state[i];
}

static void fill_tokens(struct markov *m)
{
    size_t context = 0;
    for (uint64_t i = 0; i < m->length; i++) {
        size_t state = draw_state(m, context, i);
        m->tokens[i] = (uint16_t)state;
        context = follow(m, context, state);
    }
}

static tutti_status markov_read(const struct tti_source *source, size_t at, size_t count, int32_t *tokens,
                                tutti_error *error)
{
    const struct markov *m = source->state;
    (void)error;
    for (size_t i = 0; i < count; i++) tokens[i] = m->tokens[at + i];
    return TUTTI_OK;
}

static void markov_free(struct markov *m)
{
    if (m != NULL) tti_free(m->tokens);
    tti_free(m);
}

static void markov_close(struct tti_source *source)
{
    markov_free(source->state);
}

/* ---- The description ------------------------------------------------------------------------------------------- */

static tutti_status read_setting(struct markov *m, const char *word, tutti_error *error)
{
    const struct {
        const char *name;
        uint64_t *value, low, high;
    } settings[] = {{"order", &m->order, 1, 8},
                    {"states", &m->states, 2, 65536},
                    {"length", &m->length, 16, UINT64_C(1) << 32},
                    {"seed", &m->seed, 0, UINT64_MAX / 2}};
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        size_t name = strlen(settings[i].name);
        if (strncmp(word, settings[i].name, name) != 0 || word[name] != '=') continue;
        char *end = NULL;
        uint64_t value = strtoull(word + name + 1, &end, 10);
        bool number = word[name + 1] >= '0' && word[name + 1] <= '9' && *end == '\0';
        if (!number || value < settings[i].low || value > settings[i].high)
            return tti_error_set(error, TUTTI_ERR_OPTION, 0,
                                 "data: markov: \"%.64s\": give a number from %" PRIu64 " to %" PRIu64, word,
                                 settings[i].low, settings[i].high);
        *settings[i].value = value;
        return TUTTI_OK;
    }
    return tti_error_set(error, TUTTI_ERR_OPTION, 0,
                         "data: markov: \"%.64s\" is not understood; write "
                         "markov:order=2,states=64,length=1000000,seed=1, or less of it",
                         word);
}

static tutti_status read_settings(struct markov *m, const char *text, tutti_error *error)
{
    char copy[256], *rest = NULL;
    *m = (struct markov){.order = 2, .states = 64, .length = 1000000, .seed = 1};
    (void)snprintf(copy, sizeof copy, "%s", text);
    for (char *word = strtok_r(copy, ",", &rest); word != NULL; word = strtok_r(NULL, ",", &rest))
        TTI_TRY(read_setting(m, word, error));
    m->contexts = 1;
    for (uint64_t i = 0; i < m->order && m->contexts <= CONTEXTS_MOST; i++) m->contexts *= (size_t)m->states;
    if (m->contexts > CONTEXTS_MOST)
        return tti_error_set(error, TUTTI_ERR_OPTION, 0,
                             "data: markov: %" PRIu64 " states of order %" PRIu64 " have more than %d contexts",
                             m->states, m->order, CONTEXTS_MOST);
    m->seed = tti_scramble(m->seed);
    return TUTTI_OK;
}

tutti_status tti_source_markov(const char *text, struct tti_source *source, tutti_error *error)
{
    struct markov *m = tti_calloc(1, sizeof *m);
    if (m == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "data: no memory");
    tutti_status status = read_settings(m, text, error);
    if (status != TUTTI_OK) {
        tti_free(m);
        return status;
    }
    double entropy = 0;
    m->tokens = tti_calloc((size_t)m->length, sizeof *m->tokens);
    if (m->tokens == NULL || !find_entropy(m, &entropy)) {
        status = tti_error_set(error, TUTTI_ERR_MEMORY, 0, "data: markov: no memory for %" PRIu64 " tokens", m->length);
        markov_free(m);
        return status;
    }
    fill_tokens(m);
    *source = (struct tti_source){.length = (size_t)m->length,
                                  .vocabulary = (size_t)m->states,
                                  .entropy = entropy,
                                  .read = markov_read,
                                  .close = markov_close,
                                  .state = m};
    return TUTTI_OK;
}
