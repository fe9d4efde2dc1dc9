/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=60 labels=asan,tsan
 *
 * Traces: the file is JSON, has every rank, operations with their names and sites, steps within them; over threads,
 * processes and tcp; started ops, comms of some ranks, with their names; what the library calls inside other calls is
 * told from the caller's own; what does not fit is dropped and counted; off by default.
 */
#include "fault.h"

#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <tutti/train.h>
#include <unistd.h>

enum { LARGE = 1 << 16, MANY = 100, STARTED = 3000 };
#define SLACK 0.0021 /* microseconds: times are rounded to nanoseconds */

static char folder[64], file[80], setting[100];

/* ---- Reading --------------------------------------------------------------------------------------------------- */

static const char *text_of(const json_t *event, const char *key)
{
    const char *text = json_string_value(json_object_get(event, key));
    return text == NULL ? "" : text;
}

static double number_of(const json_t *event, const char *key)
{
    return json_number_value(json_object_get(event, key));
}

static json_t *argument(const json_t *event, const char *key)
{
    return json_object_get(json_object_get(event, "args"), key);
}

static bool is(const json_t *event, const char *key, const char *text)
{
    return strcmp(text_of(event, key), text) == 0;
}

static json_t *load(void)
{
    json_error_t why = {.line = 0};
    json_t *events = json_load_file(file, 0, &why);
    CHECK_THAT(json_is_array(events), "%s: line %d: %s", file, why.line, why.text);
    return events;
}

/* Events of a rank with this name and in this group. */
static int count(const json_t *events, int rank, const char *name, const char *group)
{
    int found = 0;
    size_t index;
    json_t *event;
    json_array_foreach(events, index, event)
        found += is(event, "name", name) && is(event, "cat", group) && (int)number_of(event, "pid") == rank;
    return found;
}

static bool is_operation(const json_t *event)
{
    return is(event, "cat", "operation") || is(event, "cat", "internal");
}

/* Each step lies in the operation with its number, and operations of a row come one after the other. */
static void check_order(const json_t *events)
{
    size_t i, j;
    json_t *event, *other;
    double last_end[FAULT_RANKS] = {0};
    json_array_foreach(events, i, event)
    {
        int rank = (int)number_of(event, "pid");
        double begin = number_of(event, "ts"), length = number_of(event, "dur");
        if (!is(event, "ph", "X")) continue;
        CHECK_THAT(length >= 0, "%s lasts %f", text_of(event, "name"), length);
        if (is_operation(event) && number_of(event, "tid") == 0) {
            CHECK_THAT(begin >= last_end[rank] - SLACK, "%s begins %f before the last one has ended",
                       text_of(event, "name"), last_end[rank] - begin);
            last_end[rank] = begin + length;
        }
        if (!is(event, "cat", "step")) continue;
        int around = 0;
        json_array_foreach(events, j, other)
        {
            if (!is_operation(other) || (int)number_of(other, "pid") != rank) continue;
            if (number_of(other, "tid") != number_of(event, "tid")) continue;
            if (!json_equal(argument(other, "sequence"), argument(event, "sequence"))) continue;
            around += number_of(other, "ts") <= begin + SLACK &&
                      begin + length <= number_of(other, "ts") + number_of(other, "dur") + SLACK;
        }
        CHECK_THAT(around == 1, "rank %d's step %s is in %d operations", rank, text_of(event, "name"), around);
    }
}

static const json_t *find(const json_t *events, const char *name, const char *label)
{
    size_t index;
    json_t *event;
    json_array_foreach(events, index, event)
    {
        const char *given = json_string_value(argument(event, "label"));
        if (is(event, "name", name) && given != NULL && strcmp(given, label) == 0) return event;
    }
    return NULL;
}

/* ---- Ranks ----------------------------------------------------------------------------------------------------- */

enum { SITE_LINE = __LINE__ + 13 };

static void use(tutti_comm *comm, struct fault_rank *self)
{
    int rank = tutti_rank(comm);
    float *x = calloc(LARGE, sizeof *x), *y = calloc(LARGE, sizeof *y);
    tutti_comm *half;
    tutti_op op;
    (void)self;
    CHECK(tutti_barrier(comm) == TUTTI_OK);
    /* cut off in the middle of a letter, quoted, and not ASCII */
    tutti_comm *named = tutti_named(comm, "\"größte\" Änderung der Gewichtä");
    CHECK(tutti_all_reduce(named, x, y, 3, TUTTI_F32, TUTTI_MAX) == TUTTI_OK);
    CHECK(tutti_all_reduce(tutti_named(comm, "large"), x, y, LARGE, TUTTI_F32, TUTTI_SUM) == TUTTI_OK);
    CHECK(tutti_broadcast(comm, x, y, LARGE, TUTTI_F32, 1) == TUTTI_OK);
    CHECK(tutti_all_gather_start(comm, x, y, 10, TUTTI_F32, &op) == TUTTI_OK);
    CHECK(tutti_wait(op) == TUTTI_OK);
    CHECK(tutti_comm_split(comm, rank % 2, 0, &half) == TUTTI_OK);
    CHECK(tutti_scan(half, x, y, 10, TUTTI_F32, TUTTI_SUM) == TUTTI_OK);
    CHECK(tutti_comm_free(half) == TUTTI_OK);
    free(x);
    free(y);
}

static void check_file(int size)
{
    json_t *events = load();
    for (int rank = 0; rank < size; rank++) {
        CHECK(count(events, rank, "barrier", "operation") == 1);
        CHECK(count(events, rank, "all_reduce", "operation") == 2);
        CHECK(count(events, rank, "broadcast", "operation") == 1);
        CHECK(count(events, rank, "all_gather", "operation") == 1);
        CHECK(count(events, rank, "comm_split: all_gather", "internal") >= 3);
        CHECK(count(events, rank, "scan", "operation") == 1);
    }
    CHECK(count(events, size, "barrier", "operation") == 0);
    check_order(events);
    const json_t *large = find(events, "all_reduce", "large");
    char at[32];
    snprintf(at, sizeof at, "test_trace.c:%d", SITE_LINE);
    CHECK(large != NULL && json_integer_value(argument(large, "count")) == LARGE);
    CHECK(large != NULL && strcmp(json_string_value(argument(large, "type")), "f32") == 0);
    CHECK(large != NULL && strcmp(json_string_value(argument(large, "reduction")), "sum") == 0);
    const char *said = large == NULL ? NULL : json_string_value(argument(large, "at"));
    CHECK_THAT(said != NULL && strstr(said, at) != NULL, "%s", said == NULL ? "nothing" : said);
    json_decref(events);
}

/* ---- Names ------------------------------------------------------------------------------------------------------- */

static void make_named(tutti_comm *comm, struct fault_rank *self)
{
    static const char *const names[] = {"data", "te\"nsor"};
    tutti_mesh *mesh;
    tutti_comm *data, *both, *rows;
    (void)self;
    CHECK(tutti_mesh_create(comm, names, (int[]){2, 2}, 2, &mesh) == TUTTI_OK);
    CHECK(tutti_mesh_comm(mesh, "data", &data) == TUTTI_OK && tutti_barrier(data) == TUTTI_OK);
    CHECK(tutti_mesh_comm(mesh, "data,te\"nsor", &both) == TUTTI_OK && tutti_barrier(both) == TUTTI_OK);
    CHECK(tutti_comm_split(tutti_named(comm, "rows"), tutti_rank(comm) / 2, 0, &rows) == TUTTI_OK);
    CHECK(tutti_barrier(rows) == TUTTI_OK && tutti_comm_free(rows) == TUTTI_OK);
    tutti_mesh_free(mesh);
}

/* How many of a rank's rows are called so; "%u" stands for the number of the comm, which differs between ranks. */
static int count_rows(const json_t *events, int rank, const char *name, const char *rest)
{
    int found = 0;
    size_t index;
    json_t *event;
    json_array_foreach(events, index, event)
    {
        const char *row = json_string_value(argument(event, "name"));
        if (!is(event, "name", "thread_name") || (int)number_of(event, "pid") != rank) continue;
        size_t length = strlen(name), tail = strlen(rest);
        found += strncmp(row, name, length) == 0 && strlen(row) > length + tail &&
                 strcmp(row + strlen(row) - tail, rest) == 0;
    }
    return found;
}

static void check_names(void)
{
    for (int processes = 0; processes < 2; processes++) {
        struct fault_world world = {.size = 4, .processes = processes, .body = make_named, .settings = {setting}};
        check_title("names of comms, %s", processes ? "processes" : "threads");
        CHECK(fault_run(&world));
        json_t *events = load();
        for (int rank = 0; rank < 4; rank++) {
            CHECK(count_rows(events, rank, "mesh data (comm ", " of 2 ranks)") == 1);
            CHECK(count_rows(events, rank, "mesh data,te\"nsor (comm ", " of 4 ranks)") == 1);
            CHECK(count_rows(events, rank, "mesh (comm ", " of 4 ranks)") == 1);
            CHECK(count_rows(events, rank, "rows (comm ", " of 2 ranks)") == 1);
            CHECK(count(events, rank, "barrier", "operation") == 3);
            CHECK(count(events, rank, "all_gather", "operation") == 0);
            CHECK(count(events, rank, "mesh data 2 x te?nsor 2: all_gather", "internal") == 3);
            CHECK(count(events, rank, "mesh comm along data: all_gather", "internal") == 3);
            CHECK(count(events, rank, "comm_split: all_gather", "internal") == 3);
        }
        CHECK(find(events, "comm_split: all_gather", "comm_split: rows") != NULL);
        CHECK(find(events, "mesh data 2 x te?nsor 2: all_gather", "mesh data 2 x te\"nsor 2") != NULL);
        json_decref(events);
    }
}

/* A user who gives the same name gets the same label, and no other group. Of many parameters that are sent out by the same
 * line each is told by its name. */
enum { PARAMETERS = 100 };

static void reduce(tutti_comm *comm, struct fault_rank *self)
{
    float value = 1, gradient = 2, values[PARAMETERS] = {0}, gradients[PARAMETERS] = {0};
    char names[PARAMETERS][16];
    tutti_parameter parameter = {.name = NULL, .value = &value, .gradient = &gradient, .count = 1}, all[PARAMETERS];
    tutti_ddp *ddp;
    double total;
    tutti_error error;
    (void)self;
    CHECK(tutti_ddp_create(comm, &parameter, 1, NULL, &ddp, &error) == TUTTI_OK);
    CHECK(tutti_ddp_begin(ddp, true) == TUTTI_OK && tutti_ddp_ready(ddp, 0) == TUTTI_OK);
    CHECK(tutti_ddp_end(ddp, 1, &total) == TUTTI_OK && total == 2);
    CHECK(tutti_all_reduce(tutti_named(comm, "ddp: count"), &value, &value, 1, TUTTI_F32, TUTTI_SUM) == TUTTI_OK);
    CHECK(tutti_barrier(comm) == TUTTI_OK && tutti_weights_compare(comm, 7, NULL) == TUTTI_OK);
    tutti_ddp_free(ddp);
    for (int i = 0; i < PARAMETERS; i++) {
        snprintf(names[i], sizeof names[i], "h.%d.weight", i);
        all[i] = (tutti_parameter){.name = names[i], .value = &values[i], .gradient = &gradients[i], .count = 1};
    }
    CHECK(tutti_ddp_create(comm, all, PARAMETERS, NULL, &ddp, &error) == TUTTI_OK);
    tutti_ddp_free(ddp);
}

static void check_inside(void)
{
    struct fault_world world = {.size = 2, .body = reduce, .settings = {setting}};
    check_title("calls inside others");
    CHECK(fault_run(&world));
    json_t *events = load();
    for (int rank = 0; rank < 2; rank++) {
        CHECK(count(events, rank, "ddp: broadcast", "internal") == 1 + PARAMETERS);
        CHECK(count(events, rank, "ddp: all_reduce", "internal") == 2);
        CHECK(count(events, rank, "weights_compare: all_gather", "internal") == 1);
        CHECK(count(events, rank, "all_reduce", "operation") == 1);
        CHECK(count(events, rank, "barrier", "operation") == 1);
        CHECK(count(events, rank, "broadcast", "operation") == 0 &&
              count(events, rank, "all_gather", "operation") == 0);
    }
    for (int i = 0; i < PARAMETERS; i++) {
        char label[32];
        snprintf(label, sizeof label, "ddp: h.%d.weight", i);
        CHECK_THAT(find(events, "ddp: broadcast", label) != NULL, "%s", label);
    }
    CHECK(find(events, "ddp: all_reduce", "ddp: gradients") != NULL);
    CHECK(find(events, "all_reduce", "ddp: count") != NULL);
    json_decref(events);
}

/* ---- Messages ---------------------------------------------------------------------------------------------------- */

static void talk(tutti_comm *comm, struct fault_rank *self)
{
    int rank = tutti_rank(comm), number = 0;
    (void)self;
    if (rank == 0) CHECK(tutti_send(comm, &number, 1, TUTTI_I32, 1, 5) == TUTTI_OK);
    if (rank == 1) CHECK(tutti_recv(comm, &number, 1, TUTTI_I32, 0, 5, NULL) == TUTTI_OK);
    CHECK(tutti_sendrecv(comm, &rank, 1, 1 - rank, 0, &number, 1, 1 - rank, 0, TUTTI_I32, NULL) == TUTTI_OK);
    CHECK(tutti_group_begin(comm) == TUTTI_OK && tutti_group_end(comm) == TUTTI_OK);
    tutti_op ops[3];
    float x[STARTED] = {0}, y[STARTED], z;
    CHECK(tutti_recv_start(tutti_named(comm, "early"), y, STARTED, TUTTI_F32, 1 - rank, 6, NULL, &ops[0]) == TUTTI_OK);
    CHECK(tutti_send_start(comm, x, STARTED, TUTTI_F32, 1 - rank, 6, &ops[1]) == TUTTI_OK);
    CHECK(tutti_group_begin(comm) == TUTTI_OK && tutti_send(comm, x, 1, TUTTI_F32, 1 - rank, 7) == TUTTI_OK);
    CHECK(tutti_recv(comm, &z, 1, TUTTI_F32, 1 - rank, 7, NULL) == TUTTI_OK);
    CHECK(tutti_group_end_start(comm, &ops[2]) == TUTTI_OK && tutti_wait_all(ops, 3) == TUTTI_OK);
}

/* Those that were started are pairs of a begin and an end with one number. */
static void check_started(const json_t *events, int rank)
{
    size_t i, j;
    json_t *event, *other;
    int pairs = 0;
    json_array_foreach(events, i, event)
    {
        if (!is(event, "ph", "b") || (int)number_of(event, "pid") != rank) continue;
        int ends = 0;
        json_array_foreach(events, j, other) ends += is(other, "ph", "e") && is(other, "id", text_of(event, "id")) &&
                                                     is(other, "name", text_of(event, "name")) &&
                                                     number_of(other, "ts") >= number_of(event, "ts");
        CHECK_THAT(ends == 1, "%s %s has %d ends", text_of(event, "name"), text_of(event, "id"), ends);
        pairs++;
        if (is(event, "name", "group")) continue;
        CHECK(json_integer_value(argument(event, "bytes")) == STARTED * sizeof(float));
        CHECK(json_integer_value(argument(event, "peer")) == 1 - rank && argument(event, "at") != NULL);
    }
    CHECK(pairs == 3 && find(events, "recv", "early") != NULL);
}

static void check_messages(void)
{
    struct fault_world world = {.size = 2, .body = talk, .settings = {setting}};
    check_title("messages");
    CHECK(fault_run(&world));
    json_t *events = load();
    for (int rank = 0; rank < 2; rank++) {
        const char *blocking = rank == 0 ? "send" : "recv", *started = rank == 0 ? "recv" : "send";
        CHECK(count(events, rank, blocking, "message") == 3 && count(events, rank, started, "message") == 2);
        CHECK(count(events, rank, "sendrecv", "message") == 1 && count(events, rank, "group", "message") == 3);
        check_started(events, rank);
    }
    check_order(events);
    json_decref(events);
}

static void check_worlds(void)
{
    static const char *const kinds[] = {"TUTTI_TRANSPORT=auto", "TUTTI_TRANSPORT=tcp"};
    for (int kind = 0; kind < 2; kind++) {
        for (int processes = 0; processes < 2; processes++) {
            struct fault_world world = {
                .size = 3, .processes = processes, .body = use, .settings = {setting, kinds[kind]}};
            check_title("%s, %s", kinds[kind], processes ? "processes" : "threads");
            CHECK(fault_run(&world));
            check_file(3);
        }
    }
}

/* ---- Limits ---------------------------------------------------------------------------------------------------- */

static void many(tutti_comm *comm, struct fault_rank *self)
{
    (void)self;
    for (int i = 0; i < MANY; i++) CHECK(tutti_barrier(comm) == TUTTI_OK);
}

static void check_dropped(void)
{
    struct fault_world world = {.size = 2, .body = many, .settings = {setting, "TUTTI_TRACE_EVENTS=20"}};
    size_t index;
    json_t *event;
    check_title("dropped events");
    CHECK(fault_run(&world));
    json_t *events = load();
    int notes = 0, last[2] = {0}, kept[2] = {0};
    json_array_foreach(events, index, event)
    {
        int rank = (int)number_of(event, "pid");
        if (is(event, "name", "events dropped")) {
            notes++;
            CHECK(json_integer_value(argument(event, "dropped")) >= MANY - 20);
            CHECK(json_integer_value(argument(event, "kept")) == 20);
        }
        if (!is(event, "ph", "X") || rank < 0 || rank > 1) continue;
        kept[rank]++;
        last[rank] = (int)json_integer_value(argument(event, "sequence"));
    }
    CHECK(notes == 2 && kept[0] == 20 && kept[1] == 20);
    CHECK(last[0] == MANY && last[1] == MANY); /* the oldest go */
    json_decref(events);
}

static void die(tutti_comm *comm, struct fault_rank *self)
{
    (void)self;
    CHECK(tutti_barrier(comm) == TUTTI_OK);
    fault_meet(comm);
    if (tutti_rank(comm) == 1) {
        fault_expect_end(1);
        _exit(0);
    }
    CHECK(tutti_barrier(comm) == TUTTI_ERR_PEER_LOST);
}

static void check_death(void)
{
    struct fault_world world = {.size = 3, .processes = true, .body = die, .settings = {setting}};
    check_title("a rank that died");
    CHECK(fault_run(&world));
    json_t *events = load();
    int first = count(events, 0, "barrier", "operation"), last = count(events, 2, "barrier", "operation");
    /* a call that finds the comm broken by the other survivor already begins no operation */
    CHECK(first >= 1 && first <= 2 && last >= 1 && last <= 2 && first + last >= 3);
    CHECK(count(events, 1, "barrier", "operation") == 0);
    int failed = 0;
    size_t index;
    json_t *event;
    json_array_foreach(events, index, event)
    {
        const char *status = json_string_value(argument(event, "status"));
        failed += status != NULL && strcmp(status, "TUTTI_ERR_PEER_LOST") == 0;
    }
    CHECK(failed == first + last - 2);
    json_decref(events);
}

/* Half an event at the end of the file, as of a rank that was killed while it wrote, spoils nothing, however long it is. */
static int half_bytes;

static void damage(tutti_comm *comm, struct fault_rank *self)
{
    (void)self;
    CHECK(tutti_barrier(comm) == TUTTI_OK);
    if (tutti_rank(comm) != 0) return;
    FILE *out = fopen(file, "w");
    fprintf(out, "[\n{\"name\":\"whole\"},\n%0*d", half_bytes, 0);
    fclose(out);
}

static void check_damage(void)
{
    enum { READ_BACK = 4096 }; /* at a time */
    static const int lengths[] = {1, READ_BACK - 2, READ_BACK - 1, READ_BACK, 3 * READ_BACK};
    struct fault_world world = {.size = 1, .body = damage, .settings = {setting}};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        half_bytes = lengths[i];
        check_title("half an event of %d bytes", half_bytes);
        CHECK(fault_run(&world));
        json_t *events = load();
        CHECK(is(json_array_get(events, 0), "name", "whole") && count(events, 0, "barrier", "operation") == 1);
        json_decref(events);
    }
}

/* A process that joins again goes on in its file. */
static void check_again(void)
{
    tutti_comm *world;
    check_title("two worlds, one after the other");
    setenv("TUTTI_TRACE", file, 1);
    for (int i = 0; i < 2; i++) {
        CHECK(tutti_join(&world) == TUTTI_OK && tutti_barrier(world) == TUTTI_OK);
        CHECK(tutti_leave(world) == TUTTI_OK);
    }
    unsetenv("TUTTI_TRACE");
    json_t *events = load();
    CHECK(count(events, 0, "barrier", "operation") == 2);
    json_decref(events);
}

static int return_well(tutti_comm *comm, int argc, char **argv)
{
    (void)argc, (void)argv;
    tutti_comm *made;
    CHECK(tutti_comm_duplicate(comm, &made) == TUTTI_OK && tutti_barrier(made) == TUTTI_OK);
    CHECK(tutti_comm_free(made) == TUTTI_ERR_SYSTEM && tutti_barrier(comm) == TUTTI_OK);
    return 0;
}

/* A limit on files stands for a disk that is full: the file is whole as before, and nobody is told that all is well. */
static void check_full(void)
{
    tutti_comm *world;
    struct rlimit before = {0}, limit;
    struct stat info = {0};
    char *arguments[] = {file, NULL};
    check_title("a trace on a full disk");
    CHECK(stat(file, &info) == 0 && info.st_size > 0 && getrlimit(RLIMIT_FSIZE, &before) == 0);
    json_t *events = load(), *again;
    limit = before;
    limit.rlim_cur = (rlim_t)info.st_size + 20;
    signal(SIGXFSZ, SIG_IGN);
    fault_catch_log();
    setenv("TUTTI_TRACE", file, 1);
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    CHECK(tutti_join(&world) == TUTTI_OK && tutti_barrier(world) == TUTTI_OK);
    CHECK(tutti_leave(world) == TUTTI_ERR_SYSTEM);
    CHECK(fault_logged("what rank 0 has done is missing in the trace"));
    setenv("TUTTI_RANKS", "2", 1);
    CHECK(tutti_main(return_well, 1, arguments) == 1);
    unsetenv("TUTTI_RANKS");
    CHECK(tutti_main(return_well, 1, arguments) == 1);
    unsetenv("TUTTI_TRACE");
    CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0);
    signal(SIGXFSZ, SIG_DFL);
    tutti_log_to(NULL, NULL);
    again = load();
    CHECK(json_equal(events, again));
    json_decref(again);
    json_decref(events);
}

static void check_off(void)
{
    struct fault_world world = {.size = 2, .processes = true, .body = many};
    check_title("not traced");
    unlink(file);
    CHECK(fault_run(&world));
    CHECK(access(file, F_OK) != 0);
}

static void check_refused(void)
{
    tutti_comm *world;
    check_title("a file that cannot be written");
    setenv("TUTTI_TRACE", "/nowhere/at/all.json", 1);
    CHECK(tutti_join(&world) == TUTTI_ERR_OPTION);
    const tutti_error *error = tutti_comm_error(world);
    CHECK_THAT(error != NULL && strstr(error->text, "/nowhere/at/all.json") != NULL, "%s", error->text);
    tutti_leave(world);
    unsetenv("TUTTI_TRACE");
}

int main(void)
{
    fault_begin(50);
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%.40s/tutti-XXXXXX", base == NULL ? "/tmp" : base);
    if (mkdtemp(folder) == NULL) return 1;
    snprintf(file, sizeof file, "%s/t.json", folder);
    snprintf(setting, sizeof setting, "TUTTI_TRACE=%s", file);
    check_worlds();
    check_names();
    check_inside();
    check_messages();
    check_dropped();
    check_death();
    check_damage();
    check_again();
    check_full();
    check_off();
    check_refused();
    unlink(file);
    rmdir(folder);
    return fault_end();
}
