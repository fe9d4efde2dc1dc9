/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=60 labels=asan
 *
 * Rows, values, nearest words, environment and tuning files.
 */
#include "base/options.h"
#include "check.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const tutti_option_row number = {"number", TUTTI_OPTION_INT, "1", 1, 100, "a number"};
static const tutti_option_row below = {"below", TUTTI_OPTION_INT, "-1", -1, 100, "a number"};
static const tutti_option_row moment = {"moment", TUTTI_OPTION_MS, "1", 1, 86400000, "a time"};
static const tutti_option_row size = {"size", TUTTI_OPTION_BYTES, "0", 0, INT64_C(1) << 50, "a size"};
static const tutti_option_row toggle = {"toggle", TUTTI_OPTION_BOOL, "0", 0, 1, "a switch"};
static const tutti_option_row phrase = {"phrase", TUTTI_OPTION_TEXT, "", 0, 0, "a text"};

static void test_values(void)
{
    static const struct {
        const tutti_option_row *row;
        const char *text;
        int64_t value;
    } good[] = {
        {&number, "1", 1},
        {&number, "100", 100},
        {&number, "007", 7},
        {&below, "-1", -1},
        {&below, "0", 0},
        {&moment, "250", 250},
        {&moment, "250ms", 250},
        {&moment, "3s", 3000},
        {&moment, "2min", 120000},
        {&size, "0", 0},
        {&size, "64", 64},
        {&size, "64K", 65536},
        {&size, "1M", 1048576},
        {&size, "2G", INT64_C(1) << 31},
        {&size, "1024T", INT64_C(1) << 50},
        {&toggle, "0", 0},
        {&toggle, "1", 1},
        {&toggle, "yes", 1},
        {&toggle, "no", 0},
        {&toggle, "on", 1},
        {&toggle, "off", 0},
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        int64_t value = -99;
        tutti_error error = {0};
        tutti_status status = tutti_option_parse(good[i].row, good[i].text, &value, &error);
        CHECK_THAT(status == TUTTI_OK && value == good[i].value, "%s \"%s\" %s", good[i].row->name, good[i].text,
                   error.text);
    }
    CHECK_THAT(tutti_option_parse(&phrase, "", NULL, NULL) == TUTTI_OK, "any text");
    CHECK_THAT(tutti_option_parse(&phrase, "x y", NULL, NULL) == TUTTI_OK, "any text");
}

static void test_bad_values(void)
{
    static const struct {
        const tutti_option_row *row;
        const char *text, *says;
    } bad[] = {
        {&number, "", "number: the value is empty; give a whole number from 1 to 100"},
        {&number, "0", "number: \"0\" is out of range; give a whole number from 1 to 100"},
        {&number, "101", "out of range"},
        {&number, "-1", "out of range"},
        {&number, "4x", "number: \"4x\" is not understood; give a whole number from 1 to 100"},
        {&number, " 4", "not understood"},
        {&number, "4 ", "not understood"},
        {&number, "+4", "not understood"},
        {&number, "4.0", "not understood"},
        {&number, "1e1", "not understood"},
        {&number, "0x4", "not understood"},
        {&number, "-", "not understood"},
        {&number, "--4", "not understood"},
        {&number, "4K", "not understood"},
        {&number, "9223372036854775807", "out of range"},
        {&number, "9223372036854775808", "out of range"},
        {&number, "18446744073709551617", "out of range"},
        {&below, "-2", "out of range"},
        {&below, "-9223372036854775809", "out of range"},
        {&moment, "5h", "not understood; give a time from 1 to 86400000 ms, such as 250, 250ms, 3s or 2min"},
        {&moment, "5 s", "not understood"},
        {&moment, "ms", "not understood"},
        {&moment, "0", "out of range"},
        {&moment, "153722867280913min", "out of range"},
        {&size, "1KB", "not understood; give a size from 0 to 1125899906842624 bytes, such as 64, 64K, 1M or 2G"},
        {&size, "-1", "out of range"},
        {&size, "9223372036854775807G", "out of range"},
        {&size, "16777216T", "out of range"},
        {&toggle, "2", "toggle: \"2\" is not understood; give 0, 1, no, yes, off or on"},
        {&toggle, "true", "not understood"},
        {&toggle, "", "the value is empty; give 0, 1, no, yes, off or on"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int64_t value = -99;
        tutti_error error = {0};
        tutti_status status = tutti_option_parse(bad[i].row, bad[i].text, &value, &error);
        CHECK_THAT(status == TUTTI_ERR_OPTION, "%s \"%s\"", bad[i].row->name, bad[i].text);
        CHECK_THAT(value == -99, "%s \"%s\": the output changed", bad[i].row->name, bad[i].text);
        CHECK_THAT(strstr(error.text, bad[i].says) != NULL, "\"%s\" in \"%s\"", bad[i].says, error.text);
    }
    char long_text[2000];
    tutti_error error;
    CHECK_THAT(tutti_option_parse(&number, "x", NULL, NULL) == TUTTI_ERR_OPTION, "nobody wants to know");
    memset(long_text, '1', sizeof long_text);
    long_text[sizeof long_text - 1] = '\0';
    CHECK_THAT(tutti_option_parse(&number, long_text, NULL, &error) == TUTTI_ERR_OPTION, "long value");
    CHECK_THAT(tutti_option_parse(NULL, "x", NULL, NULL) == TUTTI_ERR_ARGUMENT, "no row");
    CHECK_THAT(tutti_option_parse(&number, NULL, NULL, NULL) == TUTTI_ERR_ARGUMENT, "no text");
}

/* Every row's default must be a value that the row accepts, and names must be fit for environment and flags. */
static void check_rows(const tutti_option_row *rows, size_t count)
{
    CHECK_THAT(count > 0, "rows");
    for (size_t i = 0; i < count; i++) {
        int64_t value = 0;
        tutti_error error = {0};
        CHECK_THAT(tutti_option_parse(&rows[i], rows[i].initial, &value, &error) == TUTTI_OK, "%s", error.text);
        CHECK_THAT(rows[i].help != NULL && strlen(rows[i].help) > 10, "%s has no help", rows[i].name);
        for (const char *c = rows[i].name; *c != '\0'; c++)
            CHECK_THAT(islower((unsigned char)*c) || *c == '_', "%s", rows[i].name);
        for (size_t j = 0; j < i; j++)
            CHECK_THAT(strcmp(rows[i].name, rows[j].name) != 0, "%s is there twice", rows[i].name);
    }
}

static void test_rows(void)
{
    size_t count = 0;
    const tutti_option_row *rows = tutti_option_rows(&count);
    check_rows(rows, count);
    CHECK_THAT(strcmp(rows[0].name, "ranks") == 0 && strcmp(rows[0].initial, "1") == 0, "%s", rows[0].name);
    CHECK_THAT(strcmp(rows[1].initial, "") == 0, "a text's default is the text itself: %s", rows[1].initial);
    CHECK_THAT(tutti_option_rows(NULL) == rows, "count may be NULL");
    rows = tutti_tuning_rows(&count);
    check_rows(rows, count);
}

static void check_nearest(const char *word, const char *wanted)
{
    static const char *const words[] = {
        "run", "bench", "help", "join_timeout_ms", "--log-dir", "--env", "--nnodes", "--nnodes-most", NULL, "", "x"};
    const char *near = tutti_nearest(word, words, sizeof words / sizeof words[0]);
    if (near == NULL) near = "nothing";
    CHECK_THAT(strcmp(near, wanted) == 0, "%s: %s, not %s", word, near, wanted);
}

static void test_nearest(void)
{
    check_nearest("run", "run");
    check_nearest("rnu", "run");
    check_nearest("ru", "run");
    check_nearest("runn", "run");
    check_nearest("RUN", "run");
    check_nearest("bnech", "bench");
    check_nearest("becnh", "bench");
    check_nearest("hlep", "help");
    check_nearest("join-timeout-ms", "join_timeout_ms");
    check_nearest("join_timeout", "join_timeout_ms");
    check_nearest("--log_dri", "--log-dir");
    check_nearest("--nn", "--nnodes");
    check_nearest("--nnodes_", "--nnodes-most");
    check_nearest("--e", "--env");
    check_nearest("--", "nothing");
    check_nearest("jo", "join_timeout_ms");
    check_nearest("x", "x");
    check_nearest("y", "nothing");
    check_nearest("", "nothing");
    check_nearest("frobnicate", "nothing");
    check_nearest("zz", "nothing");
    char longest[200];
    memset(longest, 'r', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    check_nearest(longest, "nothing");
    CHECK_THAT(tutti_nearest(NULL, NULL, 0) == NULL, "NULL");
    CHECK_THAT(tutti_nearest("run", NULL, 3) == NULL, "NULL");
}

static void test_environment(void)
{
    tutti_options options;
    tutti_error error = {.text = "old"};
    (void)clearenv();
    CHECK_THAT(tutti_options_init(&options, &error) == TUTTI_OK, "%s", error.text);
    CHECK_THAT(error.text[0] == '\0' && options.struct_size == sizeof options, "%zu", options.struct_size);
#define IS_INT(name, initial) CHECK_THAT(options.name == (initial), #name)
#define IS_MS IS_INT
#define IS_BYTES IS_INT
#define IS_BOOL IS_INT
#define IS_TEXT(name, initial) CHECK_THAT(strcmp(options.name, initial) == 0, #name)
#define IS_DEFAULT(name, kind, initial, low, high, help) IS_##kind(name, initial);
    TUTTI_OPTION_LIST(IS_DEFAULT)
    CHECK_THAT(tutti_options_init(NULL, NULL) == TUTTI_ERR_ARGUMENT, "NULL");

    (void)setenv("TUTTI_RANKS", "4", 1);
    (void)setenv("TUTTI_JOB", "a job", 1);
    (void)setenv("TUTTI_DEADLINE_MS", "2min", 1);
    (void)setenv("TUTTI_ARENA_BYTES", "64M", 1);
    (void)setenv("TUTTI_DIRECT", "off", 1);
    CHECK_THAT(tutti_options_init(&options, NULL) == TUTTI_OK, "from the environment");
    CHECK_THAT(options.ranks == 4 && options.deadline_ms == 120000 && options.arena_bytes == 67108864, "numbers");
    CHECK_THAT(options.direct == 0 && strcmp(options.job, "a job") == 0, "the others");

    /* the first bad one is told, keeps its default, and the rest are read */
    (void)setenv("TUTTI_RANKS", "4 ", 1);
    (void)setenv("TUTTI_FENCE_MS", "never", 1);
    (void)setenv("TUTTI_ATTACH", "0", 1);
    CHECK_THAT(tutti_options_init(&options, &error) == TUTTI_ERR_OPTION, "bad");
    CHECK_THAT(strcmp(error.text, "TUTTI_RANKS: \"4 \" is not understood; give a whole number from 1 to 65536") == 0,
               "%s", error.text);
    CHECK_THAT(options.ranks == 1 && options.fence_ms == 1000 && options.attach == 0, "defaults");
    CHECK_THAT(tutti_options_init(&options, NULL) == TUTTI_ERR_OPTION, "without a reason");
    (void)clearenv();
}

static void test_strays(void)
{
    tutti_stray_option stray;
    size_t place = 0;
    (void)clearenv();
    (void)setenv("TUTTI_RANKS", "4", 1);
    (void)setenv("TUTTI_KEY", "x", 1);
    (void)setenv("TUTTI_DIR", "x", 1);
    (void)setenv("TUTTI", "x", 1);
    CHECK_THAT(!tutti_options_stray(&place, &stray), "%s", stray.name);
    (void)setenv("TUTTI_RNAKS", "4", 1);
    (void)setenv("TUTTI_FOO", "4", 1);
    place = 0;
    for (int i = 0; i < 2; i++) {
        CHECK(tutti_options_stray(&place, &stray));
        const char *nearest = strcmp(stray.name, "TUTTI_FOO") == 0 ? "" : "TUTTI_RANKS";
        CHECK_THAT(strcmp(stray.nearest, nearest) == 0, "%s: %s", stray.name, stray.nearest);
    }
    CHECK(!tutti_options_stray(&place, &stray));
    (void)clearenv();
    place = 0;
    CHECK(!tutti_options_stray(&place, &stray));
}

static const char *write_file(const char *text, size_t bytes)
{
    static char path[64];
    (void)snprintf(path, sizeof path, "/tmp/tutti-options-XXXXXX");
    int fd = mkstemp(path);
    CHECK_THAT(fd >= 0 && write(fd, text, bytes) == (ssize_t)bytes, "%s", path);
    (void)close(fd);
    return path;
}

static void check_file(const char *text, size_t bytes, const char *says)
{
    tutti_tuning tuning, before;
    tutti_error error = {0};
    const char *path = write_file(text, bytes);
    (void)tti_tuning_defaults(&tuning);
    tuning.chunk = 5000;
    before = tuning;
    tutti_status status = tti_tuning_read(path, &tuning, &error);
    CHECK_THAT(status == TUTTI_ERR_OPTION, "%s", text);
    CHECK_THAT(memcmp(&tuning, &before, sizeof tuning) == 0, "%s changed the table", text);
    CHECK_THAT(strstr(error.text, says) != NULL && strncmp(error.text, path, strlen(path)) == 0, "\"%s\" in \"%s\"",
               says, error.text);
    CHECK_THAT(tti_tuning_read(path, &tuning, NULL) == TUTTI_ERR_OPTION, "without a reason");
    (void)unlink(path);
}

static void test_tuning(void)
{
    tutti_tuning tuning;
    tutti_error error = {0};
    CHECK_THAT(tti_tuning_defaults(&tuning) == TUTTI_OK && tuning.struct_size == sizeof tuning, "defaults");
#define IS_TUNING(name, kind, initial, low, high, help) CHECK_THAT(tuning.name == (initial), #name);
    TUTTI_TUNING_LIST(IS_TUNING)
    CHECK_THAT(tti_tuning_defaults(NULL) == TUTTI_ERR_ARGUMENT, "NULL");

    static const char good[] = "# measured\n\n  chunk\t64K # per rank\r\none_shot 0\n   \ndissemination 16";
    const char *path = write_file(good, sizeof good - 1);
    tuning.tree = 77777;
    CHECK_THAT(tti_tuning_read(path, &tuning, &error) == TUTTI_OK, "%s", error.text);
    CHECK_THAT(tuning.chunk == 65536 && tuning.one_shot == 0 && tuning.dissemination == 16, "values");
    CHECK_THAT(tuning.tree == 77777 && tuning.eager == 4096, "what the file does not name stays");
    CHECK_THAT(tti_tuning_read(NULL, &tuning, NULL) == TUTTI_ERR_ARGUMENT, "NULL");
    CHECK_THAT(tti_tuning_read(path, NULL, NULL) == TUTTI_ERR_ARGUMENT, "NULL");
    (void)unlink(path);
    CHECK_THAT(tti_tuning_read(path, &tuning, &error) == TUTTI_ERR_OPTION, "missing");
    CHECK_THAT(strstr(error.text, "cannot be opened: No such file") != NULL, "%s", error.text);
    CHECK_THAT(tti_tuning_read("/tmp", &tuning, &error) == TUTTI_ERR_OPTION, "a folder");
    CHECK_THAT(strstr(error.text, "/tmp: cannot be read: Is a directory") != NULL, "%s", error.text);

#define BAD(text, says) check_file(text, sizeof text - 1, says)
    BAD("chunk 8192\nchnuk 4096\n", ":2: \"chnuk\" is not a switch-over size; did you mean chunk?");
    BAD("frobnicate 4096\n", ":1: \"frobnicate\" is not a switch-over size");
    BAD("\n\nchunk\n", ":3: chunk has no value");
    BAD("chunk # 8192\n", ":1: chunk has no value");
    BAD("chunk 8192 bytes\n", ":1: chunk: \"bytes\" follows the value");
    BAD("chunk = 8192\n", ":1: chunk: \"8192\" follows the value");
    BAD("chunk 8192\nchunk 8192\n", ":2: chunk is given twice");
    BAD("chunk 1\n", ":1: chunk: \"1\" is out of range; give a size from 4096 to 1048576 bytes");
    BAD("chunk 99999999999999999999\n", "out of range");
    BAD("chunk -8192\n", "out of range");
    BAD("chunk 8192\0 # x\neager 0\n", ":1: the line is not text");
    char line[600];
    memset(line, ' ', sizeof line);
    check_file(line, sizeof line, ":1: the line is not text or is longer than");
}

/* Text of others, as it may be shown. */
static void test_printable(void)
{
    static const struct {
        const char *from, *to;
    } rows[] = {
        {"", ""},
        {"rank 3: \"ünïcødé\", 日本, 🎻 …", "rank 3: \"ünïcødé\", 日本, 🎻 …"},
        {"\033[31mred\033[0m\033]0;title\a", "?[31mred?[0m?]0;title?"},
        {"one line\r\nanother\ttab\v\177", "one line??another?tab??"},
        {"\302\233"
         "31m \302\205 \302\240",
         "?31m ? \302\240"},                                       /* controls of eight bits; a space is none */
        {"\342\200\256gnp.\342\201\246 \342\200\250", "?gnp.? ?"}, /* backwards, and a new line */
        {"\200\377\300\257 \355\240\200 \364\220\200\200",
         "???? ? ????"}, /* no UTF-8: bytes, too long, surrogate, too large */
        {"cut off \342\200", "cut off ??"},
    };
    char text[64];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(text, sizeof text, "%s", rows[i].from);
        CHECK_THAT(tutti_text_printable(text) == text && strcmp(text, rows[i].to) == 0, "row %zu: %s", i, text);
    }
    CHECK(tutti_text_printable(NULL) == NULL);
}

int main(void)
{
    test_printable();
    test_values();
    test_bad_values();
    test_rows();
    test_nearest();
    test_environment();
    test_strays();
    test_tuning();
    return check_end();
}
