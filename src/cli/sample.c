/* SPDX-License-Identifier: Apache-2.0
 *
 * tutti sample: prints text, or token ids, from a trained model.
 */
#include "cli/cli.h"

#include <stdlib.h>
#include <string.h>
#include <tutti/train.h>

struct sample_values {
    const char *prompt;
    int64_t tokens, top, seed;
    double temperature;
};

static const struct cli_flag sample_flags[] = {
    {.row = {"prompt", TUTTI_OPTION_TEXT, "\n", 0, 0, "what comes before: text, or for a model of token ids numbers"},
     .offset = offsetof(struct sample_values, prompt)},
    {.row = {"tokens", TUTTI_OPTION_INT, "256", 0, 1000000000, "how many to make"},
     .offset = offsetof(struct sample_values, tokens),
     .short_name = "n"},
    {.row = {"temperature", TUTTI_OPTION_REAL, "0.8", 0, 1000, "0: always the likeliest; 1: as the model thinks"},
     .offset = offsetof(struct sample_values, temperature)},
    {.row = {"top", TUTTI_OPTION_INT, "0", 0, 1000000000, "only among so many likeliest; 0: all"},
     .offset = offsetof(struct sample_values, top)},
    {.row = {"seed", TUTTI_OPTION_INT, "1", 0, 4611686018427387904, "another one gives another text"},
     .offset = offsetof(struct sample_values, seed)},
    {.row = {.name = NULL}},
};

static const struct cli_example sample_examples[] = {
    {"tutti sample run --prompt 'static int ' --tokens 400", "from the newest good checkpoint in run"},
    {"tutti sample run/step-00000500 --temperature 0", "from one checkpoint, always the likeliest token"},
    {NULL, NULL},
};

const struct cli_page cli_sample_page = {
    .usage = "tutti sample CHECKPOINT [flags]",
    .about = "Lets a trained GPT go on from a prompt. CHECKPOINT is a checkpoint, or a folder of them: then the newest "
             "good one. A model of bytes reads and writes text, a model of token ids numbers.",
    .examples = sample_examples,
    .flags = sample_flags,
    .operands = true,
};

struct text {
    int32_t *tokens;
    size_t count;
};

static bool is_text(const tutti_sampler *sampler)
{
    static const char *const ids[] = {"u16:", "u32:", "markov:"};
    const char *data = tutti_sampler_data(sampler);
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        if (strncmp(data, ids[i], strlen(ids[i])) == 0) return false;
    return true;
}

static int read_prompt(const struct sample_values *values, bool as_text, struct text *text)
{
    size_t length = strlen(values->prompt);
    text->tokens = calloc(length + (size_t)values->tokens + 1, sizeof *text->tokens);
    if (text->tokens == NULL) return cli_fail("sample", "out of memory");
    if (as_text) {
        for (size_t i = 0; i < length; i++) text->tokens[i] = (unsigned char)values->prompt[i];
        text->count = length;
        return CLI_GO_ON;
    }
    for (const char *at = values->prompt + strspn(values->prompt, " \n,"); *at != '\0'; at += strspn(at, " \n,")) {
        char *end = NULL;
        long id = strtol(at, &end, 10);
        if (end == at || id < 0 || id > INT32_MAX)
            return cli_refuse("sample", "--prompt: '%s' is no token id; this model was trained on ids", at);
        text->tokens[text->count++] = (int32_t)id;
        at = end;
    }
    if (text->count == 0) text->count = 1; /* token 0 is the prompt */
    return CLI_GO_ON;
}

static void print_token(bool as_text, int32_t token)
{
    if (as_text)
        (void)putchar(token);
    else
        printf(" %d", token);
}

static int sample(tutti_sampler *sampler, const struct sample_values *values, struct text *text)
{
    bool as_text = is_text(sampler);
    int status = read_prompt(values, as_text, text);
    if (status != CLI_GO_ON) return status;
    if (text->count == 0) return cli_refuse("sample", "--prompt has no token; the model needs something to go on from");
    for (size_t i = 0; i < text->count; i++) print_token(as_text, text->tokens[i]);
    for (int64_t made = 0; made < values->tokens; made++) {
        tutti_error error;
        int32_t next = 0;
        if (tutti_sampler_next(sampler, text->tokens, text->count, values->temperature, (int)values->top,
                               (uint64_t)values->seed, (uint64_t)made, &next, &error) != TUTTI_OK)
            return cli_blame("sample", &error);
        text->tokens[text->count++] = next;
        print_token(as_text, next);
        (void)fflush(stdout);
    }
    printf("\n");
    return CLI_OK;
}

int cli_sample(int argc, char **argv)
{
    struct sample_values values = {0};
    struct text text = {0};
    const char *path = NULL;
    int rest = 0;
    if (argc > 1 && argv[1][0] != '-') {
        path = argv[1];
        argv[1] = argv[0];
        argv++;
        argc--;
    }
    int status = cli_parse("sample", &cli_sample_page, argc, argv, &values, &rest);
    if (status != CLI_GO_ON) return status;
    if (path == NULL && rest < argc) path = argv[rest++];
    if (rest < argc) return cli_refuse("sample", "unexpected word '%s'; see tutti sample --help", argv[rest]);
    if (path == NULL) return cli_refuse("sample", "no checkpoint given; usage: %s", cli_sample_page.usage);
    tutti_sampler *sampler = NULL;
    tutti_error error;
    (void)setenv("OPENBLAS_NUM_THREADS", "1", 1); /* OpenBLAS's own threads would only sleep */
    if (tutti_sampler_create(path, &sampler, &error) != TUTTI_OK) return cli_blame("sample", &error);
    status = sample(sampler, &values, &text);
    free(text.tokens);
    tutti_sampler_free(sampler);
    return status;
}
