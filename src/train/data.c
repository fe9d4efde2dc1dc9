/* SPDX-License-Identifier: Apache-2.0
 *
 * Samples from a source: finds the stretch of tokens, or the row, of sample number i. Nothing is remembered between
 * calls: the order depends on the seed and the number alone, so a resumed run, on any number of ranks, continues
 * exactly.
 */
#include "train/data.h"

#include "base/alloc.h"
#include "base/status.h"
#include "train/shuffle.h"
#include <math.h>
#include <string.h>

static const struct {
    const char *prefix;
    tti_source_open *open;
} sources[] = {
    {"u16:", tti_source_u16},
    {"u32:", tti_source_u32},
    {"markov:", tti_source_markov},
    {"", tti_source_bytes}, /* the last row matches everything */
};

struct tutti_data {
    tutti_data_settings settings;
    bool is_table;
    struct tti_source source;
    struct tti_csv table;
    size_t train, held_out; /* tokens or rows of each part */
    size_t samples, held_out_samples;
    size_t classes;
};

/* ---- Opening --------------------------------------------------------------------------------------------------- */

static tutti_status check_held_out(const tutti_data_settings *settings, tutti_error *error)
{
    if (settings->held_out >= 0 && settings->held_out < 1) return TUTTI_OK;
    return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "data: the held-out fraction is %g; give 0 or more, below 1",
                         settings->held_out);
}

/* Returns the number of stretches. A stretch of `context` tokens has its targets one token further on, so it needs one
 * more token. One stretch less than fit is used, so that an epoch can begin anywhere within the first. */
static size_t stretches(size_t tokens, size_t context, bool shifted)
{
    size_t fit = tokens == 0 ? 0 : (tokens - 1) / context;
    return shifted && fit > 1 ? fit - 1 : fit;
}

static tutti_status split_tokens(tutti_data *data, tutti_error *error)
{
    const tutti_data_settings *settings = &data->settings;
    size_t length = data->source.length, context = settings->context;
    data->held_out = (size_t)(settings->held_out * (double)length);
    data->train = length - data->held_out;
    data->samples = stretches(data->train, context, true);
    data->held_out_samples = stretches(data->held_out, context, false);
    const char *part = data->samples == 0 ? "for training" : "held out";
    size_t tokens = data->samples == 0 ? data->train : data->held_out;
    if (data->samples == 0 || (settings->held_out > 0 && data->held_out_samples == 0))
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                             "data: %.200s has %zu tokens, %zu of them %s; a context of %zu needs %zu",
                             settings->source, length, tokens, part, context, context + 1);
    return TUTTI_OK;
}

static tutti_status open_tokens(tutti_data *data, tutti_error *error)
{
    const char *text = data->settings.source;
    if (data->settings.context == 0)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "data: the context is 0; give 1 or more");
    size_t row = 0;
    while (strncmp(text, sources[row].prefix, strlen(sources[row].prefix)) != 0) row++;
    TTI_TRY(sources[row].open(text + strlen(sources[row].prefix), &data->source, error));
    size_t vocabulary = data->settings.vocabulary;
    if (vocabulary > 0 && data->source.vocabulary > vocabulary)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "data: %.200s has ids up to %zu; the vocabulary has %zu",
                             text, data->source.vocabulary - 1, vocabulary);
    return split_tokens(data, error);
}

static tutti_status find_classes(tutti_data *data, const char *path, tutti_error *error)
{
    const struct tti_csv *table = &data->table;
    for (size_t r = 0; r < table->rows; r++) {
        float target = table->cells[(r + 1) * table->columns - 1];
        if (!(target >= 0 && target < 65536 && target == floorf(target)))
            return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                                 "data: %.200s: row %zu has the target %g, which is no class 0, 1, …; for targets that "
                                 "are values use the loss mse",
                                 path, r + 1, (double)target);
        if ((size_t)target >= data->classes) data->classes = (size_t)target + 1;
    }
    return TUTTI_OK;
}

static tutti_status open_table(tutti_data *data, const char *path, tutti_error *error)
{
    data->is_table = true;
    TTI_TRY(tti_csv_read(path, &data->table, error));
    if (data->settings.classes) TTI_TRY(find_classes(data, path, error));
    data->held_out = (size_t)(data->settings.held_out * (double)data->table.rows);
    data->train = data->table.rows - data->held_out;
    data->samples = data->train;
    data->held_out_samples = data->held_out;
    return TUTTI_OK;
}

tutti_status tutti_data_open(const tutti_data_settings *settings, tutti_data **data, tutti_error *error)
{
    if (data == NULL) return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "data: no place for what is opened is given");
    if (settings == NULL || settings->source == NULL || settings->source[0] == '\0')
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "data: no source is given");
    TTI_TRY(check_held_out(settings, error));
    tutti_data *made = tti_calloc(1, sizeof *made);
    if (made == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "data: no memory");
    made->settings = *settings;
    bool csv = strncmp(settings->source, "csv:", 4) == 0;
    tutti_status status = csv ? open_table(made, settings->source + 4, error) : open_tokens(made, error);
    made->settings.source = NULL; /* it belongs to the caller */
    if (status != TUTTI_OK) {
        tutti_data_free(made);
        return status;
    }
    *data = made;
    return TUTTI_OK;
}

void tutti_data_free(tutti_data *data)
{
    if (data == NULL) return;
    if (data->source.close != NULL && data->source.state != NULL) data->source.close(&data->source);
    tti_free(data->table.cells);
    tti_free(data);
}

void tutti_data_describe(const tutti_data *data, tutti_data_about *about)
{
    *about = (tutti_data_about){.struct_size = sizeof *about,
                                .tokens = data->train,
                                .held_out = data->held_out,
                                .samples = data->samples,
                                .held_out_samples = data->held_out_samples,
                                .vocabulary = data->is_table ? data->classes : data->source.vocabulary,
                                .features = data->is_table ? data->table.columns - 1 : 0,
                                .entropy = data->is_table ? NAN : data->source.entropy};
    if (!data->is_table && data->settings.vocabulary > 0) about->vocabulary = data->settings.vocabulary;
}

/* ---- Samples --------------------------------------------------------------------------------------------------- */

tutti_status tutti_data_tokens(const tutti_data *data, bool held_out, uint64_t index, int32_t *tokens, int32_t *targets,
                               tutti_error *error)
{
    size_t context, at;
    if (data == NULL || data->is_table || (held_out && data->held_out_samples == 0))
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "data: %s",
                             data == NULL     ? "none is given"
                             : data->is_table ? "a table has rows, not tokens: tutti_data_row"
                                              : "nothing is held out");
    context = data->settings.context;
    if (held_out) {
        at = data->train + (size_t)(index % data->held_out_samples) * context;
    } else {
        uint64_t epoch = index / data->samples, key = tti_draw(data->settings.seed, epoch);
        size_t spare = data->train - 1 - data->samples * context;
        at = (size_t)tti_permute(index % data->samples, data->samples, key) * context;
        at += (size_t)(tti_scramble(key) % (spare + 1));
    }
    TTI_TRY(data->source.read(&data->source, at, context, tokens, error));
    memcpy(targets, tokens + 1, (context - 1) * sizeof *targets);
    return data->source.read(&data->source, at + context, 1, targets + context - 1, error);
}

void tutti_data_row(const tutti_data *data, bool held_out, uint64_t index, float *features, float *target)
{
    const struct tti_csv *table = &data->table;
    *target = NAN;
    if (!data->is_table || (held_out && data->held_out_samples == 0)) return;
    /* the place among all rows, in an order that does not depend on the seed: rows for training come first */
    size_t place;
    if (held_out) {
        place = data->train + (size_t)(index % data->held_out_samples);
    } else {
        uint64_t epoch = index / data->samples;
        place = (size_t)tti_permute(index % data->samples, data->samples, tti_draw(data->settings.seed, epoch));
    }
    size_t row = (size_t)tti_permute(place, table->rows, 0);
    const float *cells = table->cells + row * table->columns;
    memcpy(features, cells, (table->columns - 1) * sizeof *features);
    *target = cells[table->columns - 1];
}
