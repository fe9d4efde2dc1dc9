/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=60 labels=asan
 *
 * Data: every kind of source, the order of samples, the held-out part, the Markov source's entropy, and input that is
 * refused.
 */
#include "ranks.h"
#include "train/data.h"
#include "train/shuffle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/tutti-data-XXXXXX";

static const char *path_of(const char *name)
{
    static char paths[8][128];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, 128, "%s/%s", folder, name);
    return path;
}

static void write_file(const char *name, const void *bytes, size_t count)
{
    FILE *file = fopen(path_of(name), "w");
    CHECK(file != NULL && fwrite(bytes, 1, count, file) == count);
    if (file != NULL) fclose(file);
}

static tutti_data *open_data(const tutti_data_settings *settings, const char *complaint)
{
    tutti_data *data = NULL;
    tutti_error error = {0};
    tutti_status status = tutti_data_open(settings, &data, &error);
    bool right = complaint == NULL ? status == TUTTI_OK : status != TUTTI_OK && strstr(error.text, complaint) != NULL;
    if (!right) printf("%s: %s, not \"%s\"\n", settings->source, error.text, complaint == NULL ? "success" : complaint);
    CHECK(right);
    return data;
}

static void read_tokens(const tutti_data *data, bool held_out, uint64_t index, int32_t *tokens, int32_t *targets)
{
    tutti_error error;
    CHECK(tutti_data_tokens(data, held_out, index, tokens, targets, &error) == TUTTI_OK);
}

static void refused(const char *source, size_t context, const char *complaint)
{
    tutti_data_settings settings = {.source = source, .context = context, .classes = true, .held_out = 0.25};
    open_data(&settings, complaint);
}

/* ---- Sources --------------------------------------------------------------------------------------------------- */

static void test_bytes(void)
{
    char text[300];
    for (int i = 0; i < 300; i++) text[i] = (char)i;
    write_file("one", text, 300);
    tutti_data_settings settings = {.source = path_of("one"), .context = 10, .held_out = 0.1};
    tutti_data *data = open_data(&settings, NULL);
    tutti_data_about about;
    int32_t tokens[10], targets[10];
    tutti_data_describe(data, &about);
    CHECK(about.tokens == 270 && about.held_out == 30 && about.vocabulary == 256 && isnan(about.entropy));
    CHECK(about.samples == 25 && about.held_out_samples == 2);
    for (uint64_t i = 0; i < 60; i++) {
        read_tokens(data, false, i, tokens, targets);
        for (int j = 0; j < 10; j++) CHECK(targets[j] == (tokens[j] + 1) % 256 && tokens[j] == (tokens[0] + j) % 256);
    }
    read_tokens(data, true, 1, tokens, targets);
    CHECK(tokens[0] == 280 % 256 && targets[9] == 290 % 256);
    tutti_data_free(data);
}

/* Files of a folder follow each other by name, hidden ones and empty ones are passed over. */
static void test_folder(void)
{
    mkdir(path_of("tree"), 0777);
    mkdir(path_of("tree/b"), 0777);
    write_file("tree/a", "01", 2);
    write_file("tree/b/x", "234", 3);
    write_file("tree/b/y", "", 0);
    write_file("tree/c", "56789", 5);
    write_file("tree/.hidden", "zzzz", 4);
    tutti_data_settings settings = {.source = path_of("tree"), .context = 9};
    tutti_data *data = open_data(&settings, NULL);
    int32_t tokens[9], targets[9];
    read_tokens(data, false, 0, tokens, targets);
    for (int j = 0; j < 9; j++) CHECK(tokens[j] == '0' + j && targets[j] == '1' + j);
    tutti_data_free(data);
}

static void test_ids(void)
{
    uint16_t small[100];
    uint32_t large[100];
    for (int i = 0; i < 100; i++) {
        small[i] = (uint16_t)(50000 + i);
        large[i] = (uint32_t)(70000 + i);
    }
    write_file("ids16", small, sizeof small);
    write_file("ids32", large, sizeof large);
    char source[160];
    for (int wide = 0; wide < 2; wide++) {
        snprintf(source, sizeof source, "%s:%s", wide ? "u32" : "u16", path_of(wide ? "ids32" : "ids16"));
        tutti_data_settings settings = {.source = source, .context = 5};
        tutti_data *data = open_data(&settings, NULL);
        tutti_data_about about;
        int32_t tokens[5], targets[5];
        tutti_data_describe(data, &about);
        CHECK(about.vocabulary == (wide ? 70100U : 50100U) && about.tokens == 100);
        read_tokens(data, false, 3, tokens, targets);
        CHECK(targets[0] == tokens[1] && tokens[0] >= (wide ? 70000 : 50000));
        tutti_data_free(data);
        settings.vocabulary = 50099;
        open_data(&settings, "the vocabulary has 50099");
    }
    large[7] = UINT32_MAX;
    write_file("ids32", large, sizeof large);
    snprintf(source, sizeof source, "u32:%s", path_of("ids32"));
    refused(source, 5, "token 7 is 4294967295");
    write_file("odd", "abc", 3);
    snprintf(source, sizeof source, "u16:%s", path_of("odd"));
    refused(source, 5, "has 3 bytes, no multiple of 2");
}

/* ---- Order ----------------------------------------------------------------------------------------------------- */

static void test_order(void)
{
    for (uint64_t count = 1; count < 200; count += 1 + count / 7) {
        char seen[200] = {0};
        for (uint64_t i = 0; i < count; i++) {
            uint64_t place = tti_permute(i, count, 99);
            CHECK(place < count && !seen[place]);
            seen[place] = 1;
        }
    }
    /* Every epoch shows every stretch once; another seed, another order; asking again, or in another turn, the same. */
    tutti_data_settings settings = {.source = path_of("one"), .context = 10, .seed = 5};
    tutti_data *data = open_data(&settings, NULL);
    settings.seed = 6;
    tutti_data *other = open_data(&settings, NULL);
    tutti_data_about about;
    tutti_data_describe(data, &about);
    int32_t first[64], tokens[10], targets[10];
    size_t samples = about.samples, differ = 0;
    for (size_t epoch = 0; epoch < 3; epoch++) {
        char seen[300] = {0};
        for (size_t i = 0; i < samples; i++) {
            read_tokens(data, false, epoch * samples + i, tokens, targets);
            CHECK(!seen[tokens[0]]);
            seen[tokens[0]] = 1;
            if (epoch == 0) first[i] = tokens[0];
            read_tokens(other, false, epoch * samples + i, tokens, targets);
            if (epoch == 0) differ += tokens[0] != first[i];
        }
    }
    CHECK(differ > samples / 2);
    for (size_t i = samples; i-- > 0;) {
        read_tokens(data, false, i, tokens, targets);
        CHECK(tokens[0] == first[i]);
    }
    tutti_data_free(data);
    tutti_data_free(other);
}

/* ---- Markov ---------------------------------------------------------------------------------------------------- */

/* The entropy must be what a count of contexts and successors of a long sequence says. */
static void test_markov(void)
{
    enum { STATES = 8, CONTEXTS = STATES * STATES, LENGTH = 400000 };
    struct tti_source source;
    tutti_error error;
    CHECK(tti_source_markov("order=2,states=8,length=400000,seed=3", &source, &error) == TUTTI_OK);
    int32_t *tokens = calloc(LENGTH, sizeof *tokens);
    double counts[CONTEXTS][STATES] = {{0}}, entropy = 0;
    CHECK(source.length == LENGTH && source.vocabulary == STATES);
    CHECK(source.read(&source, 0, LENGTH, tokens, &error) == TUTTI_OK);
    for (size_t i = 2; i < LENGTH; i++) counts[tokens[i - 2] * STATES + tokens[i - 1]][tokens[i]]++;
    for (int c = 0; c < CONTEXTS; c++) {
        double all = 0;
        for (int s = 0; s < STATES; s++) all += counts[c][s];
        for (int s = 0; s < STATES; s++)
            if (counts[c][s] > 0) entropy -= counts[c][s] / (LENGTH - 2) * log(counts[c][s] / all);
    }
    CHECK(fabs(entropy - source.entropy) < 0.005 && source.entropy < log(STATES));
    source.close(&source);
    free(tokens);
    CHECK(tti_source_markov("order=2,states=64,length=16", &source, &error) == TUTTI_OK);
    CHECK(source.entropy > 1 && source.entropy < log(64));
    source.close(&source);
    refused("markov:order=9", 4, "from 1 to 8");
    refused("markov:order=3,states=1000", 4, "contexts");
    refused("markov:colour=2", 4, "\"colour=2\" is not understood");
    refused("markov:states=2x", 4, "from 2 to 65536");
}

/* ---- CSV ------------------------------------------------------------------------------------------------------- */

static void test_csv(void)
{
    char text[4096], source[160];
    int used = snprintf(text, sizeof text, "x,y,kind\r\n");
    for (int i = 0; i < 40; i++)
        used += snprintf(text + used, sizeof text - (size_t)used, "%d, %g ,%d%s", i, i / 2.0, i % 3,
                         i % 2 ? "\r\n" : "\n\n");
    write_file("t.csv", text, (size_t)used);
    snprintf(source, sizeof source, "csv:%s", path_of("t.csv"));
    tutti_data_settings settings = {.source = source, .classes = true, .held_out = 0.25, .seed = 1};
    tutti_data *data = open_data(&settings, NULL);
    tutti_data_about about;
    char seen[40] = {0};
    tutti_data_describe(data, &about);
    CHECK(about.features == 2 && about.vocabulary == 3 && about.samples == 30 && about.held_out_samples == 10);
    for (uint64_t i = 0; i < 40; i++) {
        float features[2], target;
        tutti_data_row(data, i >= 30, i % 30, features, &target);
        int row = (int)features[0];
        CHECK(row >= 0 && row < 40 && !seen[row] && features[1] == (float)row / 2 && target == (float)(row % 3));
        seen[row] = 1;
    }
    tutti_data_free(data);
}

static void csv_refused(const char *text, const char *complaint)
{
    char source[160];
    write_file("bad.csv", text, strlen(text));
    snprintf(source, sizeof source, "csv:%s", path_of("bad.csv"));
    refused(source, 0, complaint);
}

static void test_bad_csv(void)
{
    csv_refused("1,2,0\n1,2,1\n1,abc,1\n", "bad.csv:3: column 2 is \"abc\", not a number");
    csv_refused("1,abc,0\n1,2,1\n",
                "bad.csv:1: column 2 is \"abc\", not a number; in a first line of names no cell is one");
    csv_refused("1,2,0\n1,2\n", "bad.csv:2: 2 columns, but the rows before it have 3");
    csv_refused("1,2,0\n1,2,1,4\n", "bad.csv:2: 4 columns");
    csv_refused("1,2,0\n1,,1\n", "bad.csv:2: column 2 is \"\", not a number");
    csv_refused("1,2,0\n1,nan,1\n", "bad.csv:2: column 2 is \"nan\"");
    csv_refused("1,2,0\n1,1.000000000000000000000000000000000000000000000000000000000000000e9,1\n",
                "bad.csv:2: column 2 is");
    csv_refused("a,b,c\n", "has names but no rows");
    csv_refused("\n \n", "has no rows");
    csv_refused("1\n2\n", "has one column");
    csv_refused("1,2,0\n1,2,1.5\n", "row 2 has the target 1.5, which is no class");
    csv_refused("1,2,0\n1,2,-1\n", "row 2 has the target -1");
}

static void test_bad_files(void)
{
    refused(path_of("missing"), 8, "missing cannot be opened (No such file");
    refused("", 8, "no source");
    write_file("empty", "", 0);
    refused(path_of("empty"), 8, "is empty");
    write_file("short", "12345678", 8);
    refused(path_of("short"), 8, "a context of 8 needs 9");
    refused(path_of("one"), 0, "the context is 0");
    mkdir(path_of("none"), 0777);
    refused(path_of("none"), 8, "holds no bytes");
    refused("/dev/null", 8, "neither a file nor a folder");
    refused("csv:/tmp", 8, "/tmp is a folder; one file is needed");
    refused("u16:/tmp", 8, "/tmp is a folder; one file is needed");
    write_file("closed", "123456789", 9);
    chmod(path_of("closed"), 0);
    if (geteuid() != 0) refused(path_of("closed"), 8, "cannot be read (Permission");
    tutti_data_settings settings = {.source = path_of("one"), .context = 8, .held_out = 1};
    open_data(&settings, "held-out fraction is 1");
    settings.held_out = 0.01;
    open_data(&settings, "3 of them held out; a context of 8 needs 9");
}

/* ---- Files that change ----------------------------------------------------------------------------------------- */

static void shrinks(const char *prefix, const char *name)
{
    enum { PAGES = 4, BYTES = PAGES * 4096 };
    static const char zeros[BYTES];
    char source[160], shrunk[192];
    int32_t tokens[10], targets[10];
    tutti_error error = {0};
    tutti_status status = TUTTI_OK;
    write_file(name, zeros, BYTES);
    snprintf(source, sizeof source, "%s%s", prefix, path_of(name));
    tutti_data_settings settings = {.source = source, .context = 10};
    tutti_data *data = open_data(&settings, NULL);
    read_tokens(data, false, 0, tokens, targets);
    CHECK(truncate(path_of(name), 100) == 0);
    for (uint64_t i = 0; i < 100; i++) {
        status = tutti_data_tokens(data, false, i, tokens, targets, &error);
        CHECK(status == TUTTI_ERR_DAMAGED);
    }
    snprintf(shrunk, sizeof shrunk, "%s has shrunk from %d to 100 bytes", path_of(name), BYTES);
    CHECK(strstr(error.text, shrunk) != NULL);
    /* Written anew, as editors do, it is another file: what was opened is still there. */
    write_file(name, zeros, BYTES);
    write_file("anew", "x", 1);
    CHECK(rename(path_of("anew"), path_of(name)) == 0);
    read_tokens(data, false, 3, tokens, targets);
    tutti_data_free(data);
}

static void test_shrinking(void)
{
    shrinks("", "bytes");
    shrinks("u16:", "words");
    shrinks("u32:", "wide");
}

int main(void)
{
    char command[64];
    if (mkdtemp(folder) == NULL) return 1;
    test_bytes();
    test_folder();
    test_ids();
    test_order();
    test_markov();
    test_csv();
    test_bad_csv();
    test_bad_files();
    test_shrinking();
    snprintf(command, sizeof command, "rm -rf %s", folder);
    CHECK(system(command) == 0);
    return check_end();
}
