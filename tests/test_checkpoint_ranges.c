/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=120 labels=asan
 *
 * The files of a checkpoint as ranges: for any number of ranks every byte is in one piece, a rank's ranges begin at whole
 * MiB, and files do not depend on who wrote what. Each part of 64 MiB has its hash: damage says where. Checkpoints with one
 * hash per file, as they were saved before, are read.
 */
#include "ranks.h"
#include "train/checkpoint_ranges.h"
#include "train/shuffle.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[] = "/tmp/tutti-ranges-XXXXXX";

enum { MIB = 1 << 20, TENSORS = 5 };

/* Of two groups: sizes at and beside the borders of pieces and parts, and an empty tensor. */
static void describe(tutti_checkpoint_tensor tensors[TENSORS], int64_t first)
{
    const tutti_checkpoint_tensor rows[TENSORS] = {
        {.group = "model", .name = "a", .dimensions = 1, .shape = {first}},
        {.group = "model", .name = "b", .dimensions = 2, .shape = {0, 7}},
        {.group = "model", .name = "c", .dimensions = 1, .shape = {TTI_PART_BYTES / 4 + 1}},
        {.group = "optimizer", .name = "d", .dimensions = 1, .shape = {3}},
        {.group = "optimizer", .name = "e", .dimensions = 1, .shape = {TTI_PART_BYTES / 4}},
    };
    memcpy(tensors, rows, sizeof rows);
}

/* ---- Arithmetic ------------------------------------------------------------------------------------------------ */

struct seen {
    size_t next[TENSORS]; /* of each tensor: the first element that was not seen yet */
    const tutti_checkpoint_tensor *tensors;
    const struct tti_range_piece *piece;
    uint64_t at; /* in the piece: where the next run has to begin */
};

static void see_run(void *context, const tutti_checkpoint_tensor *tensor, size_t first, size_t count, size_t at)
{
    struct seen *seen = context;
    size_t *next = &seen->next[tensor - seen->tensors];
    CHECK_THAT(first == *next && at == seen->at, "%s: a run from %zu at %zu, wanted %zu at %llu", tensor->name, first,
               at, *next, (unsigned long long)seen->at);
    *next += count;
    seen->at += count * sizeof(float);
}

/* Goes through the parts in the order of the files, whoever has them. */
static void check_plan(const struct tti_range_plan *plan, const tutti_checkpoint_tensor *tensors, int size)
{
    struct seen seen = {.tensors = tensors};
    const size_t rounds = tti_range_rounds(plan, size);
    CHECK(rounds * (size_t)size >= plan->parts && (rounds - 1) * (size_t)size < plan->parts);
    const struct tti_range_file *file = NULL;
    uint64_t end = 0;
    for (size_t i = 0; i < rounds * (size_t)size * TTI_PART_PIECES; i++) {
        const size_t part = i / TTI_PART_PIECES;
        const struct tti_range_piece piece = tti_range_piece(plan, (int)(part % (size_t)size), size,
                                                             part / (size_t)size, i % TTI_PART_PIECES);
        if (piece.file == NULL) continue;
        if (piece.file != file) CHECK(file == NULL || end == file->bytes);
        if (piece.file != file) end = 0;
        file = piece.file;
        CHECK(piece.from == end && piece.from % MIB == 0 && piece.to > piece.from && piece.to - piece.from <= MIB);
        CHECK(piece.part == part);
        end = piece.to;
        seen.piece = &piece;
        seen.at = piece.from < file->header_bytes ? file->header_bytes - piece.from : 0;
        tti_range_walk(&piece, see_run, &seen);
        CHECK(piece.from + seen.at == piece.to);
    }
    CHECK(file == &plan->files[plan->file_count - 1] && end == file->bytes);
    for (int i = 0; i < TENSORS; i++)
        CHECK(seen.next[i] == tti_tensor_elements(tensors[i].dimensions, tensors[i].shape));
}

static void test_plans(void)
{
    for (int64_t first = 0; first < 3; first++) {
        tutti_checkpoint_tensor tensors[TENSORS];
        struct tti_range_plan plan;
        tutti_error error;
        describe(tensors, first == 0 ? 1 : first * TTI_PART_BYTES / 4 - 37);
        const struct tti_checkpoint_content content = {.tensors = tensors, .tensor_count = TENSORS, .elsewhere = true};
        CHECK(tti_range_plan_make(&content, &plan, &error) == TUTTI_OK);
        for (int size = 1; size <= 9; size++) check_plan(&plan, tensors, size);
        tti_range_plan_free(&plan);
    }
}

/* ---- Files ----------------------------------------------------------------------------------------------------- */

static float *values;
static tutti_checkpoint_tensor large;

static void make_large(void)
{
    large = (tutti_checkpoint_tensor){
        .group = "model", .name = "w", .dimensions = 1, .shape = {TTI_PART_BYTES / 4 + MIB}, .values = NULL};
    const size_t count = tti_tensor_elements(1, large.shape);
    values = malloc(count * sizeof *values);
    CHECK(values != NULL);
    for (size_t i = 0; i < count; i++) values[i] = (float)(i % 8191);
    large.values = values;
}

static const char *below(const char *name)
{
    static char path[200];
    snprintf(path, sizeof path, "%s/step-00000001/%s", folder, name);
    return path;
}

static void test_parts(void)
{
    tutti_error error = {0};
    CHECK(tutti_checkpoint_save(folder, 1, 1, NULL, 0, &large, 1, &error) == TUTTI_OK);
    tutti_checkpoint *checkpoint = NULL;
    CHECK(tutti_checkpoint_open(below(""), true, &checkpoint, &error) == TUTTI_OK);
    const size_t count = tti_tensor_elements(1, large.shape);
    float last[2] = {0};
    CHECK(tti_checkpoint_read(checkpoint, &large, count - 2, 2, last, &error) == TUTTI_OK);
    CHECK(last[0] == values[count - 2] && last[1] == values[count - 1]);
    tutti_checkpoint_free(checkpoint);
}

/* One bit of the second part: the error says where. */
static void test_damage(void)
{
    tutti_error error = {0};
    tutti_checkpoint *checkpoint = NULL;
    const off_t at = TTI_PART_BYTES + 12345;
    unsigned char byte = 0;
    int fd = open(below("model.safetensors"), O_RDWR);
    CHECK(fd >= 0 && pread(fd, &byte, 1, at) == 1);
    byte ^= 4;
    CHECK(pwrite(fd, &byte, 1, at) == 1);
    CHECK(tutti_checkpoint_open(below(""), true, &checkpoint, &error) == TUTTI_ERR_DAMAGED);
    CHECK_THAT(strstr(error.text, "from byte 67108864 on") != NULL, "%s", error.text);
    byte ^= 4;
    CHECK(pwrite(fd, &byte, 1, at) == 1);
    (void)close(fd);
}

/* ---- Checkpoints of before ------------------------------------------------------------------------------------- */

/* The index as it was written with one hash per file. */
static void write_version(int version, uint64_t hash)
{
    char hex[TTI_HEX], checksum[TTI_HEX];
    json_t *whole = json_load_file(below("index.json"), 0, NULL), *index = json_object_get(whole, "index");
    json_t *row = json_array_get(json_object_get(index, "files"), 0);
    json_object_del(row, "hashes");
    json_object_set_new(row, "hash", json_string(tti_hex(hash, hex)));
    json_object_set_new(index, "version", json_integer(version));
    CHECK(tti_index_checksum(index, checksum));
    json_object_set_new(whole, "checksum", json_string(checksum));
    CHECK(json_dump_file(whole, below("index.json"), 0) == 0);
    json_decref(whole);
}

static tutti_status open_it(tutti_error *error)
{
    tutti_checkpoint *checkpoint = NULL;
    tutti_status status = tutti_checkpoint_open(below(""), true, &checkpoint, error);
    if (status == TUTTI_OK) tutti_checkpoint_free(checkpoint);
    return status;
}

static void test_before(void)
{
    tutti_error error = {0};
    uint64_t bytes = 0, hash = 0;
    int fd = -1;
    CHECK(tti_file_open(below("model.safetensors"), &fd, &bytes, &error) == TUTTI_OK);
    CHECK(tti_file_hash(fd, "it", &bytes, &hash, &error) == TUTTI_OK);
    (void)close(fd);
    write_version(1, hash);
    CHECK_THAT(open_it(&error) == TUTTI_OK, "%s", error.text);
    write_version(1, hash ^ 1);
    CHECK(open_it(&error) == TUTTI_ERR_DAMAGED);
    write_version(3, hash);
    CHECK(open_it(&error) == TUTTI_ERR_DAMAGED && strstr(error.text, "neither 1 nor 2") != NULL);
}

int main(void)
{
    if (mkdtemp(folder) == NULL) return check_end();
    test_plans();
    make_large();
    test_parts();
    test_damage();
    test_before();
    free(values);
    char command[200];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    CHECK(system(command) == 0);
    return check_end();
}
