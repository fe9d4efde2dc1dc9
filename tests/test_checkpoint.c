/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=120 labels=asan
 *
 * Checkpoints: what was saved is what is loaded; the last good one always loads, after SIGKILL at any moment, on a full
 * disk and with any bit flipped; what is of another model is refused with what differs. The parsers are fed with spoiled
 * headers and indexes.
 */
#include "ranks.h"
#include "train/checkpoint.h"
#include "train/shuffle.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[] = "/tmp/tutti-ckpt-XXXXXX";

enum { TENSORS = 4, LARGE = 300000 };
static float *memory;

/* Three tensors of a model and one of an optimizer, in `memory`. */
static void describe(tutti_checkpoint_tensor tensors[TENSORS])
{
    tutti_checkpoint_tensor rows[TENSORS] = {
        {.group = "model", .name = "wte.weight", .dimensions = 2, .shape = {LARGE / 100, 100}},
        {.group = "model", .name = "h.0.bias", .dimensions = 1, .shape = {3}},
        {.group = "model", .name = "odd \"name\"\n", .dimensions = 0},
        {.group = "optimizer", .name = "exp_avg.wte.weight", .dimensions = 2, .shape = {LARGE / 100, 100}},
    };
    float *at = memory;
    for (int i = 0; i < TENSORS; i++) {
        tensors[i] = rows[i];
        tensors[i].values = at;
        at += tti_tensor_elements(rows[i].dimensions, rows[i].shape);
    }
}

static size_t elements(void)
{
    return 2 * LARGE + 4;
}

static void fill(uint64_t step)
{
    for (size_t i = 0; i < elements(); i++) memory[i] = (float)(tti_draw(step, i) % 1000);
}

static bool holds(uint64_t step)
{
    for (size_t i = 0; i < elements(); i++)
        if (memory[i] != (float)(tti_draw(step, i) % 1000)) return false;
    return true;
}

static tutti_status save(const char *at, uint64_t step, int keep, tutti_error *error)
{
    tutti_checkpoint_tensor tensors[TENSORS];
    tutti_note notes[] = {{"model.layers", "4"}, {"seed", "17"}};
    describe(tensors);
    fill(step);
    return tutti_checkpoint_save(at, step, keep, notes, 2, tensors, TENSORS, error);
}

/* Loads the newest good one of the folder; its step, or -1. */
static int64_t load(const char *at)
{
    tutti_checkpoint_tensor tensors[TENSORS];
    tutti_checkpoint *checkpoint = NULL;
    tutti_error error;
    describe(tensors);
    memset(memory, 0, elements() * sizeof *memory);
    if (tutti_checkpoint_open(at, true, &checkpoint, &error) != TUTTI_OK) return -1;
    CHECK(tutti_checkpoint_load(checkpoint, tensors, TENSORS, &error) == TUTTI_OK);
    uint64_t step = tutti_checkpoint_step(checkpoint);
    CHECK(holds(step));
    CHECK(strcmp(tutti_checkpoint_note(checkpoint, "seed"), "17") == 0);
    CHECK(tutti_checkpoint_note(checkpoint, "sead") == NULL);
    tutti_checkpoint_free(checkpoint);
    return (int64_t)step;
}

static const char *below(const char *name)
{
    static char paths[8][256];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, 256, "%s/%s", folder, name);
    return path;
}

static void count_path(void *context, const char *path)
{
    CHECK(strstr(path, "/step-") != NULL);
    ++*(int *)context;
}

static int how_many(const char *at)
{
    int count = 0;
    tutti_error error;
    CHECK(tutti_checkpoint_list(at, count_path, &count, &error) == TUTTI_OK);
    return count;
}

/* ---- The usual ------------------------------------------------------------------------------------------------- */

static void test_save_and_load(void)
{
    tutti_error error;
    const char *at = below("usual");
    for (uint64_t step = 10; step <= 50; step += 10) {
        CHECK(save(at, step, 3, &error) == TUTTI_OK);
        CHECK(load(at) == (int64_t)step);
    }
    CHECK(how_many(at) == 3);
    CHECK(save(at, 50, 3, &error) == TUTTI_OK && how_many(at) == 3); /* again: swapped with the older one */
    CHECK(save(at, 20, 3, &error) == TUTTI_OK && how_many(at) == 4 && load(at) == 50);
    CHECK(load(below("usual/step-00000020")) == 20);
    CHECK(load(below("nowhere")) == -1);
}

/* What could not be read again is not saved, and nothing is written. */
static void refused(size_t at, tutti_checkpoint_tensor as, const char *complaint)
{
    tutti_checkpoint_tensor tensors[TENSORS];
    tutti_error error = {.status = TUTTI_OK};
    describe(tensors);
    if (as.group == NULL) as.group = tensors[at].group;
    if (as.name == NULL) as.name = tensors[at].name;
    if (as.dimensions == 0) as.values = tensors[at].values;
    tensors[at] = as;
    CHECK(tutti_checkpoint_save(below("refused"), 1, 1, NULL, 0, tensors, TENSORS, &error) == TUTTI_ERR_ARGUMENT);
    CHECK(strstr(error.text, complaint) != NULL);
    CHECK(access(below("refused"), F_OK) != 0);
}

static void test_refused(void)
{
    refused(1, (tutti_checkpoint_tensor){.name = "wte.weight"}, "two of this name");
    refused(1, (tutti_checkpoint_tensor){.name = "caf\xe9"}, "a name is UTF-8");
    refused(1, (tutti_checkpoint_tensor){.name = "__metadata__"}, "not __metadata__");
    refused(1, (tutti_checkpoint_tensor){.group = "optimizer"}, "another group stands between");
    refused(3, (tutti_checkpoint_tensor){.group = "../up"}, "a group is the name of a file");
    refused(3, (tutti_checkpoint_tensor){.group = ""}, "a group is the name of a file");
    refused(2, (tutti_checkpoint_tensor){.dimensions = 1, .shape = {3}}, "its values are NULL");
    refused(2, (tutti_checkpoint_tensor){.dimensions = 5, .values = memory}, "up to 4 sizes");
    refused(2, (tutti_checkpoint_tensor){.dimensions = 2, .shape = {INT64_MAX, 2}, .values = memory}, "up to 4 sizes");
    tutti_error error = {.status = TUTTI_OK};
    tutti_note none = {"seed", NULL};
    CHECK(tutti_checkpoint_save(below("refused"), 1, 1, &none, 1, NULL, 0, &error) == TUTTI_ERR_ARGUMENT);
    CHECK(save(below("refused"), UINT64_MAX, 1, &error) == TUTTI_ERR_ARGUMENT);
}

/* Names of files have any bytes. */
static void test_other_bytes(void)
{
    tutti_error error;
    tutti_checkpoint *checkpoint = NULL;
    tutti_note notes[] = {{"data", "caf\xe9/\xff"}, {"save", "caf\xc3\xa9"}};
    CHECK(tutti_checkpoint_save(below("bytes"), 1, 1, notes, 2, NULL, 0, &error) == TUTTI_OK);
    CHECK(tutti_checkpoint_open(below("bytes"), true, &checkpoint, &error) == TUTTI_OK);
    const char *data = tutti_checkpoint_note(checkpoint, "data"), *at = tutti_checkpoint_note(checkpoint, "save");
    CHECK(data != NULL && strcmp(data, "caf\\xe9/\\xff") == 0 && tti_note_is(data, notes[0].value));
    CHECK(at != NULL && strcmp(at, "caf\xc3\xa9") == 0 && tti_note_is(at, notes[1].value));
    tutti_checkpoint_free(checkpoint);
}

/* A pipe in place of a file is damage, and not waited for. */
static void test_pipes(void)
{
    static const char *const names[] = {"pipes/step-00000002/index.json", "pipes/step-00000002/model.safetensors"};
    tutti_error error;
    for (size_t i = 0; i < 2; i++) {
        CHECK(save(below("pipes"), 1, 2, &error) == TUTTI_OK && save(below("pipes"), 2, 2, &error) == TUTTI_OK);
        CHECK(unlink(below(names[i])) == 0 && mkfifo(below(names[i]), 0600) == 0);
        CHECK(load(below("pipes")) == 1);
    }
}

/* An old one that is a link to elsewhere: the link goes, and what it points to stays. */
static void test_links(void)
{
    tutti_error error;
    CHECK(save(below("elsewhere"), 1, 1, &error) == TUTTI_OK && mkdir(below("links"), 0777) == 0);
    CHECK(symlink("../elsewhere/step-00000001", below("links/step-00000001")) == 0 && load(below("links")) == 1);
    CHECK(save(below("links"), 2, 1, &error) == TUTTI_OK);
    CHECK(how_many(below("links")) == 1 && load(below("links")) == 2 && load(below("elsewhere")) == 1);
    CHECK(access(below("links/.saving-00000002"), F_OK) != 0);
}

/* One saves at a time: the other is refused, and spoils nothing. */
static void test_two_savers(void)
{
    tutti_error error;
    const char *at = below("usual");
    int other = open(at, O_RDONLY | O_DIRECTORY);
    CHECK(other >= 0 && flock(other, LOCK_EX) == 0);
    CHECK(save(at, 60, 3, &error) == TUTTI_ERR_ARGUMENT && strstr(error.text, "another run saves into") != NULL);
    close(other);
    CHECK(load(at) == 50 && how_many(at) == 4);
}

static void collect(void *context, const char *line)
{
    strncat(context, line, 2000 - strlen(context));
    strncat(context, "\n", 2000 - strlen(context));
}

static void test_diff(void)
{
    tutti_error error;
    tutti_checkpoint *a = NULL, *b = NULL;
    char lines[2048] = "";
    CHECK(save(below("diff"), 1, 0, &error) == TUTTI_OK && save(below("diff"), 2, 0, &error) == TUTTI_OK);
    CHECK(tutti_checkpoint_open(below("diff/step-00000001"), true, &a, &error) == TUTTI_OK);
    CHECK(tutti_checkpoint_open(below("diff/step-00000002"), true, &b, &error) == TUTTI_OK);
    CHECK(tutti_checkpoint_diff(a, a, collect, lines, &error) == TUTTI_OK && lines[0] == '\0');
    CHECK(tutti_checkpoint_diff(a, b, collect, lines, &error) == TUTTI_OK);
    CHECK(strstr(lines, "step: 1, 2\n") != NULL && strstr(lines, "model: wte.weight: ") != NULL);
    CHECK(strstr(lines, "of 300000 values differ") != NULL && strstr(lines, "optimizer: exp_avg.wte.weight: ") != NULL);
    tutti_checkpoint_free(a);
    tutti_checkpoint_free(b);
}

static void other_model(tutti_checkpoint *checkpoint, int tensor, tutti_checkpoint_tensor as, const char *complaint)
{
    tutti_checkpoint_tensor tensors[TENSORS];
    tutti_error error = {0};
    describe(tensors);
    as.values = tensors[tensor].values;
    tensors[tensor] = as;
    CHECK(tutti_checkpoint_load(checkpoint, tensors, TENSORS, &error) == TUTTI_ERR_ARGUMENT);
    if (strstr(error.text, complaint) == NULL) printf("%s\n", error.text);
    CHECK(strstr(error.text, complaint) != NULL);
}

static void test_other_model(void)
{
    tutti_checkpoint *checkpoint = NULL;
    tutti_checkpoint_tensor tensors[TENSORS];
    tutti_error error;
    CHECK(tutti_checkpoint_open(below("diff"), true, &checkpoint, &error) == TUTTI_OK);
    other_model(checkpoint, 0, (tutti_checkpoint_tensor){"model", "wte.weight", 2, {100, LARGE / 100}, NULL},
                "its tensor \"wte.weight\" is (3000, 100), the model's is (100, 3000)");
    other_model(checkpoint, 1, (tutti_checkpoint_tensor){"model", "h.1.bias", 1, {3}, NULL},
                "it has no tensor \"h.1.bias\"");
    other_model(checkpoint, 3, (tutti_checkpoint_tensor){"lion", "x", 1, {3}, NULL}, "has no lion.safetensors");
    describe(tensors);
    CHECK(tutti_checkpoint_load(checkpoint, tensors, 2, &error) == TUTTI_ERR_ARGUMENT);
    CHECK(strstr(error.text, "it has 3 tensors, such as \"odd") != NULL);
    tutti_checkpoint_free(checkpoint);
}

/* ---- Damage ---------------------------------------------------------------------------------------------------- */

static void flip(const char *path, uint64_t place)
{
    int fd = open(path, O_RDWR);
    struct stat about;
    unsigned char byte = 0;
    CHECK(fd >= 0 && fstat(fd, &about) == 0);
    off_t at = (off_t)(place / 8 % (uint64_t)about.st_size);
    CHECK(pread(fd, &byte, 1, at) == 1);
    byte = (unsigned char)(byte ^ 1U << place % 8);
    CHECK(pwrite(fd, &byte, 1, at) == 1);
    close(fd);
}

static char heard[4096];
static void listen(void *context, tutti_log_level level, const char *line)
{
    (void)context, (void)level;
    strncat(heard, line, sizeof heard - strlen(heard) - 1);
}

/* Any bit of any file: the newest is named and the one before is used. (Blanks between an index's values may change.) */
static void test_flipped_bits(void)
{
    static const char *const files[] = {"model.safetensors", "optimizer.safetensors", "index.json"};
    tutti_error error;
    const char *at = below("flips");
    CHECK(save(at, 1, 0, &error) == TUTTI_OK && save(at, 2, 0, &error) == TUTTI_OK);
    tutti_log_to(listen, NULL);
    for (uint64_t i = 0; i < 120; i++) {
        char path[300];
        uint64_t place = i < 60 ? tti_draw(5, i) % 3000 : tti_draw(5, i); /* the headers more often */
        snprintf(path, sizeof path, "%s/step-00000002/%s", at, files[i % 3]);
        heard[0] = '\0';
        flip(path, place);
        int64_t loaded = load(at);
        CHECK(loaded == 1 || (i % 3 == 2 && loaded == 2));
        CHECK(loaded == 2 ||
              (strstr(heard, "step-00000002 is damaged") != NULL && strstr(heard, files[i % 3]) != NULL));
        flip(path, place);
    }
    CHECK(load(at) == 2);
    CHECK(truncate(below("flips/step-00000002/optimizer.safetensors"), 1000) == 0 && load(at) == 1);
    CHECK(unlink(below("flips/step-00000002/optimizer.safetensors")) == 0 && load(at) == 1);
    CHECK(unlink(below("flips/step-00000002/index.json")) == 0 && load(at) == 1);
    CHECK(unlink(below("flips/step-00000001/index.json")) == 0 && load(at) == -1);
    tutti_log_to(NULL, NULL);
}

/* ---- Death and full disks -------------------------------------------------------------------------------------- */

static void save_for_ever(const char *at, uint64_t from)
{
    tutti_error error;
    for (uint64_t step = from;; step++)
        if (save(at, step, 2, &error) != TUTTI_OK) _exit(1);
}

static void check_whole(void *context, const char *path)
{
    tutti_checkpoint *checkpoint = NULL;
    tutti_error error;
    (void)context;
    CHECK(tutti_checkpoint_open(path, true, &checkpoint, &error) == TUTTI_OK);
    tutti_checkpoint_free(checkpoint);
}

/* Whatever has its name is whole, those that were about to be removed too. */
static void test_killed(void)
{
    tutti_error error;
    const char *at = below("killed");
    uint64_t seed = (uint64_t)getpid(), next = 1;
    int64_t last = 0;
    printf("kill seed %llu\n", (unsigned long long)seed);
    for (uint64_t round = 0; round < 25; round++) {
        pid_t child = fork();
        if (child == 0) save_for_ever(at, next);
        poll(NULL, 0, (int)(tti_draw(seed, round) % 60)); /* any moment will do */
        kill(child, SIGKILL);
        int status = 0;
        CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
        int64_t step = access(at, F_OK) == 0 ? load(at) : -1;
        CHECK(step >= last || (step == -1 && last == 0));
        CHECK(step == -1 || tutti_checkpoint_list(at, check_whole, NULL, &error) == TUTTI_OK);
        if (step > last) last = step;
        next = (uint64_t)last + 1;
    }
    CHECK(last > 0);
    CHECK(save(at, next, 2, &error) == TUTTI_OK && how_many(at) == 2);
    CHECK(access(below("killed/.saving-00000001"), F_OK) != 0);
}

/* A disk that is full after so many bytes, by a limit on the size of files. */
static int save_limited(const char *at, size_t bytes)
{
    struct rlimit limit = {bytes, bytes};
    tutti_error error;
    signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 2;
    tutti_status status = save(at, 2, 1, &error);
    bool right = status == TUTTI_ERR_SYSTEM && strstr(error.text, "cannot be written after") != NULL;
    return right && load(at) == 1 && how_many(at) == 1 ? 0 : 1;
}

static void test_full_disk(void)
{
    tutti_error error;
    const char *at = below("full");
    static const size_t limits[] = {0, 10, 400, 100000, 1200000};
    CHECK(save(at, 1, 1, &error) == TUTTI_OK);
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        pid_t child = fork();
        if (child == 0) _exit(save_limited(at, limits[i]));
        int status = 0;
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
        CHECK(access(below("full/.saving-00000002"), F_OK) != 0);
    }
    CHECK(load(at) == 1);
    CHECK(save("/proc/none", 1, 1, &error) == TUTTI_ERR_SYSTEM && strstr(error.text, "/proc/none") != NULL);
}

/* ---- Spoiled headers and indexes ------------------------------------------------------------------------------- */

static void parse_header(const char *text, size_t bytes, uint64_t file_bytes, tutti_status wanted)
{
    struct tti_safetensors tensors;
    tutti_error error;
    tutti_status status = tti_safetensors_parse(text, bytes, file_bytes, "file", &tensors, &error);
    if (wanted != TUTTI_IN_PROGRESS) CHECK(status == wanted);
    if (status == TUTTI_OK) {
        for (size_t i = 0; i < tensors.count; i++)
            CHECK(tensors.tensors[i].end <= file_bytes && tensors.tensors[i].begin <= tensors.tensors[i].end);
        tti_safetensors_free(&tensors);
    }
}

#define HEADER(text, data, wanted) parse_header(text, strlen(text), 8 + strlen(text) + (data), wanted)
#define T1 "\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}"

static void test_headers(void)
{
    HEADER("{" T1 "}", 24, TUTTI_OK);
    HEADER("{\"__metadata__\":{\"x\":\"y\"}," T1 "}   ", 24, TUTTI_OK);
    HEADER("{}", 0, TUTTI_OK);
    HEADER("{" T1 "}", 23, TUTTI_ERR_DAMAGED);
    HEADER("{" T1 "}", 25, TUTTI_ERR_DAMAGED);
    HEADER("{" T1 "," T1 "}", 24, TUTTI_ERR_DAMAGED); /* a name twice */
    HEADER("", 0, TUTTI_ERR_DAMAGED);
    HEADER("[]", 0, TUTTI_ERR_DAMAGED);
    HEADER("{\"a\":5}", 0, TUTTI_ERR_DAMAGED);
    HEADER("{\"a\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, TUTTI_ERR_DAMAGED);
    HEADER("{\"a\":{\"dtype\":\"F32\",\"shape\":[-2,-3],\"data_offsets\":[0,24]}}", 24, TUTTI_ERR_DAMAGED);
    HEADER("{\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[24,0]}}", 24, TUTTI_ERR_DAMAGED);
    HEADER("{\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[-24,0]}}", 24, TUTTI_ERR_DAMAGED);
    HEADER("{\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[8,32]}}", 32, TUTTI_ERR_DAMAGED);
    HEADER("{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0,
           TUTTI_ERR_DAMAGED);
    HEADER("{\"a\":{\"dtype\":\"F32\",\"shape\":[9223372036854775807],\"data_offsets\":[0,4]}}", 4, TUTTI_ERR_DAMAGED);
    HEADER("{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1],\"data_offsets\":[0,4]}}", 4, TUTTI_ERR_DAMAGED);
    HEADER("{\"a\":{\"dtype\":\"F32\",\"shape\":[1.5],\"data_offsets\":[0,4]}}", 4, TUTTI_ERR_DAMAGED);
    HEADER("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", 4, TUTTI_ERR_DAMAGED);
    char deep[20000];
    memset(deep, '[', sizeof deep);
    parse_header(deep, sizeof deep, 8 + sizeof deep, TUTTI_ERR_DAMAGED);
}

/* Bytes replaced, removed and doubled: the parsers must answer, whatever it is. */
static size_t spoil(char *text, size_t bytes, uint64_t seed)
{
    static const char words[] = "{}[]\":,-0123456789eE.tfn\\\0 ";
    for (uint64_t i = 0; i <= tti_draw(seed, 0) % 4; i++) {
        uint64_t r = tti_draw(seed, i + 1);
        size_t at = (size_t)(r >> 8) % bytes;
        if (r % 3 == 0) {
            text[at] = words[(r >> 40) % sizeof words];
        } else if (r % 3 == 1 && bytes > 1) {
            memmove(text + at, text + at + 1, bytes - at - 1);
            bytes--;
        } else {
            text[at] = (char)(r >> 40);
        }
    }
    return bytes;
}

static void test_spoiled(uint64_t from, uint64_t count)
{
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\"},\"wte.weight\":{\"dtype\":\"F32\",\"shape\":[4,8],"
        "\"data_offsets\":[0,128]},\"b\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[128,132]}}";
    static const char index[] =
        "{\"checksum\":\"0123456789abcdef\",\"index\":{\"format\":\"tutti checkpoint\",\"version\":1,"
        "\"step\":12,\"notes\":{\"a\":\"b\"},\"files\":[{\"name\":\"model.safetensors\",\"bytes\":3}]}}";
    for (uint64_t seed = from; seed < from + count; seed++) {
        char text[512];
        tutti_error error;
        memcpy(text, header, sizeof header);
        size_t bytes = spoil(text, sizeof header - 1, seed);
        parse_header(text, bytes, 8 + bytes + 132, TUTTI_IN_PROGRESS);
        memcpy(text, index, sizeof index);
        json_t *json = tti_index_parse(text, spoil(text, sizeof index - 1, seed), "file", &error);
        CHECK(json == NULL); /* the checksum was never right */
        json_decref(json);
    }
}

/* Indexes whose checksum is right, and who wrote them wrong: the step has to be a number of steps. */
static void test_steps(void)
{
    static const struct {
        const char *step;
        bool good;
    } rows[] = {{"12", true},   {"0", true},       {"-1", false},   {"-9223372036854775808", false},
                {"1.5", false}, {"\"12\"", false}, {"null", false}, {"[]", false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[512], checksum[TTI_HEX];
        tutti_error error = {.text = ""};
        snprintf(text, sizeof text, "{\"format\":\"tutti checkpoint\",\"version\":1,\"step\":%s}", rows[i].step);
        json_t *index = json_loads(text, 0, NULL);
        CHECK(index != NULL && tti_index_checksum(index, checksum));
        json_decref(index);
        json_t *whole = json_pack("{s:s,s:o}", "checksum", checksum, "index", json_loads(text, 0, NULL));
        char *printed = json_dumps(whole, 0);
        json_decref(whole);
        index = tti_index_parse(printed, strlen(printed), "file", &error);
        CHECK((index != NULL) == rows[i].good);
        CHECK(rows[i].good ||
              (error.status == TUTTI_ERR_DAMAGED && strstr(error.text, "its step is not a whole") != NULL));
        json_decref(index);
        free(printed);
    }
}

/* test_checkpoint SEED COUNT: only spoiled headers and indexes, from that seed on, for as long as one likes. */
int main(int argc, char **argv)
{
    char command[64];
    if (argc > 2) {
        test_spoiled(strtoull(argv[1], NULL, 10), strtoull(argv[2], NULL, 10));
        return check_end();
    }
    if (mkdtemp(folder) == NULL) return 1;
    memory = calloc(elements(), sizeof *memory);
    test_save_and_load();
    test_refused();
    test_other_bytes();
    test_pipes();
    test_links();
    test_two_savers();
    test_diff();
    test_other_model();
    test_flipped_bits();
    test_killed();
    test_full_disk();
    test_headers();
    test_steps();
    test_spoiled(0, SANITIZED ? 4000 : 20000);
    free(memory);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    CHECK(system(command) == 0);
    return check_end();
}
