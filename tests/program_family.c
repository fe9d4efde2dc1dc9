/* SPDX-License-Identifier: Apache-2.0
 *
 * Which ranks are in which comm of a random program, and where.
 */
#include "check_program.h"

void program_split(const struct program_action *action, int group, int place, int *colour, int *key)
{
    uint64_t who = (uint64_t)(group * 100 + place);
    *colour = program_pick(action->seed, who, 8) == 0 ? -1 : program_pick(action->seed, 2000 + who, 3);
    *key = program_pick(action->seed, 4000 + who, 4) - 2;
}

int program_selected(const struct program_action *action, int group, int size, int place)
{
    uint64_t mine = conf_hash(action->seed, (uint64_t)(group * 100 + place));
    int before = 0, count = 1 + program_pick(action->seed, 7000 + (uint64_t)group, size);
    for (int i = 0; i < size; i++) before += conf_hash(action->seed, (uint64_t)(group * 100 + i)) < mine;
    return before < count ? before : -1;
}

int program_mesh_first(const struct program_action *action, int group, int size)
{
    int first = 1 + program_pick(action->seed, 8000 + (uint64_t)group, size);
    while (size % first != 0) first--;
    return first;
}

/* Ranks with the same key are in one comm, in the order of `order`; a comm's number is its lowest rank in the world. */
static struct program_family *form(struct program *program, int from, const int *keys, const int *order)
{
    struct program_family *made = &program->families[program->family_count++];
    *made = (struct program_family){.from = from, .sibling = -1, .live = true};
    for (int rank = 0; rank < program->size; rank++) {
        made->group[rank] = -1;
        for (int other = program->size; other-- > 0 && keys[rank] >= 0;) {
            if (keys[other] != keys[rank]) continue;
            made->group[rank] = other;
            made->size[rank]++;
            made->place[rank] += order[other] < order[rank];
        }
    }
    return made;
}

static void form_mesh(struct program *program, const struct program_action *action)
{
    const struct program_family *from = &program->families[action->family];
    int keys[2][PROGRAM_RANKS], order[2][PROGRAM_RANKS];
    for (int rank = 0; rank < program->size; rank++) {
        keys[0][rank] = keys[1][rank] = -1;
        if (from->group[rank] < 0) continue;
        int second = from->size[rank] / program_mesh_first(action, from->group[rank], from->size[rank]);
        int a = from->place[rank] / second, b = from->place[rank] % second, group = from->group[rank] * 100;
        keys[0][rank] = group + b, order[0][rank] = a;
        keys[1][rank] = group + a, order[1][rank] = b;
    }
    struct program_family *first = form(program, action->family, keys[0], order[0]);
    struct program_family *second = form(program, action->family, keys[1], order[1]);
    first->sibling = (int)(second - program->families);
    second->sibling = (int)(first - program->families);
}

static void form_one(struct program *program, const struct program_action *action)
{
    const struct program_family *from = &program->families[action->family];
    int keys[PROGRAM_RANKS], order[PROGRAM_RANKS];
    for (int rank = 0; rank < program->size; rank++) {
        int group = from->group[rank], place = from->place[rank], colour = 0, key = 0;
        keys[rank] = -1;
        order[rank] = place;
        if (group < 0) continue;
        if (action->make == MAKE_SPLIT) program_split(action, group, place, &colour, &key);
        if (action->make == MAKE_SPLIT) order[rank] = key * 100 + place;
        if (action->make == MAKE_SELECT) order[rank] = program_selected(action, group, from->size[rank], place);
        if (action->make == MAKE_SELECT) colour = order[rank] < 0 ? -1 : 0;
        keys[rank] = colour < 0 ? -1 : group * 100 + colour;
    }
    form(program, action->family, keys, order)->tolerant = action->make == MAKE_TOLERANT;
}

void program_form(struct program *program, const struct program_action *action)
{
    if (action->make == MAKE_MESH)
        form_mesh(program, action);
    else
        form_one(program, action);
}

void program_form_world(struct program *program)
{
    int keys[PROGRAM_RANKS] = {0}, order[PROGRAM_RANKS];
    for (int rank = 0; rank < PROGRAM_RANKS; rank++) order[rank] = rank;
    form(program, -1, keys, order);
}
