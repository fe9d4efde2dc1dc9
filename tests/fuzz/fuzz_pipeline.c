/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz: runs=200000 */
/* Tables of pipelines as people write them: any text is taken or refused with a sentence; what is taken is checked with a
 * verdict or a sentence, and is the same table after it was written and read again. */
#include "train/pipeline_table.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void must(bool holds)
{
    if (!holds) abort();
}

static char *written(const tutti_pipeline *pipeline, size_t *bytes)
{
    char *text = NULL;
    FILE *stream = open_memstream(&text, bytes);
    must(stream != NULL);
    tutti_pipeline_write(pipeline, stream);
    must(fclose(stream) == 0);
    return text;
}

static void check(const tutti_pipeline *pipeline)
{
    tutti_pipeline_about about = {.struct_size = sizeof about};
    tutti_pipeline_describe(pipeline, &about);
    tutti_error error = {0};
    tutti_pipeline_verdict verdict = {.struct_size = sizeof verdict};
    verdict.spans = calloc(about.steps + 1, sizeof *verdict.spans);
    tutti_status status = tutti_pipeline_check(pipeline, NULL, 0, &verdict, &error);
    must(status == TUTTI_OK || (error.status == status && error.text[0] != '\0' && error.rank >= 0));
    must(status != TUTTI_OK || (verdict.makespan >= 3.0 * about.chunks * about.micros && verdict.live > 0));
    free(verdict.spans);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    tutti_pipeline *pipeline = NULL, *again = NULL;
    tutti_error error = {0};
    char *copy = malloc(bytes == 0 ? 1 : bytes); /* exactly as long, so that reading behind it is seen */
    memcpy(copy, data, bytes);
    tutti_status status = tti_pipeline_parse("file", copy, bytes, &pipeline, &error);
    free(copy);
    must(status == TUTTI_OK || (pipeline == NULL && error.status == status && error.text[0] != '\0'));
    if (status != TUTTI_OK) return 0;
    check(pipeline);
    size_t length, length_again;
    char *text = written(pipeline, &length);
    must(tti_pipeline_parse("again", text, length, &again, &error) == TUTTI_OK);
    char *text_again = written(again, &length_again);
    must(length == length_again && memcmp(text, text_again, length) == 0);
    free(text);
    free(text_again);
    tutti_pipeline_free(pipeline);
    tutti_pipeline_free(again);
    return 0;
}
