/* SPDX-License-Identifier: Apache-2.0 */
#include "messages.h"

#include <stdlib.h>

bool message_shared;

static const struct {
    const char *name;
    bool processes, shared;
    const char *setting;
} layouts[] = {
    {"threads, shared memory", false, true, NULL},
    {"threads, private memory", false, false, NULL},
    {"threads, nothing reachable", false, true, "TUTTI_DIRECT=0"},
    {"processes, shared memory", true, true, NULL},
    {"processes, private memory", true, false, NULL},
    {"processes, private memory, no attach", true, false, "TUTTI_ATTACH=0"},
    {"threads, frames", false, false, NULL},
};
_Static_assert(sizeof layouts / sizeof *layouts == MESSAGE_LAYOUTS, "as many as the header says");

static fault_body *over_frames;

static void wrap(tutti_comm *comm, struct fault_rank *self)
{
    message_wire_open(comm);
    over_frames(comm, self);
    message_wire_close(comm);
}

void message_run(int layout, int size, fault_body *body, const char *what)
{
    over_frames = body;
    if (layout == MESSAGE_FRAMES) body = wrap;
    struct fault_world world = {.size = size, .processes = layouts[layout].processes, .body = body};
    message_shared = layouts[layout].shared;
    world.settings[0] = layouts[layout].setting;
    check_title("%s: %s", what, layouts[layout].name);
    fault_run(&world);
}

char *message_alloc(tutti_comm *comm, size_t bytes)
{
    char *memory = message_shared ? tutti_alloc(comm, bytes) : malloc(bytes);
    CHECK(memory != NULL);
    return memory;
}

void message_free(tutti_comm *comm, void *memory)
{
    if (message_shared)
        CHECK(tutti_free(comm, memory) == TUTTI_OK);
    else
        free(memory);
}

void message_fill(char *data, int from, int to, int index, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) data[i] = message_byte(from, to, index, i);
}

bool message_is(const char *data, int from, int to, int index, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (data[i] != message_byte(from, to, index, i)) return false;
    return true;
}
