/* SPDX-License-Identifier: Apache-2.0 */
#include "check_program.h"

static bool check_made(struct program_run *run, int number)
{
    const struct program_family *family = &run->program->families[number];
    const tutti_comm *comm = run->comms[number];
    int group = family->group[run->rank];
    if (!program_check(run, (comm != NULL) == (group >= 0), "a comm that is %s", comm == NULL ? "missing" : "too many"))
        return false;
    if (comm == NULL) return true;
    return program_check(run,
                         tutti_rank(comm) == family->place[run->rank] && tutti_size(comm) == family->size[run->rank],
                         "rank %d of %d in the new comm, not %d of %d", tutti_rank(comm), tutti_size(comm),
                         family->place[run->rank], family->size[run->rank]);
}

static tutti_status make_mesh(struct program_run *run, tutti_comm *comm, int group)
{
    static const char *const names[] = {"one", "a", "b"};
    const struct program_action *action = run->action;
    int size = tutti_size(comm), first = program_mesh_first(action, group, size), sizes[] = {1, first, size / first};
    int skip = program_pick(action->seed, 1, 2), made = action->other;
    tutti_status status = tutti_mesh_create(comm, names + skip, sizes + skip, 3 - skip, &run->meshes[made]);
    if (status != TUTTI_OK) return status;
    status = tutti_mesh_comm(run->meshes[made], "a", &run->comms[made]);
    return status != TUTTI_OK ? status : tutti_mesh_comm(run->meshes[made], "b", &run->comms[made + 1]);
}

static tutti_status make_selected(struct program_run *run, tutti_comm *comm, int group)
{
    int list[PROGRAM_RANKS], count = 0, size = tutti_size(comm);
    for (int place = 0; place < size; place++) {
        int at = program_selected(run->action, group, size, place);
        if (at < 0) continue;
        list[at] = place;
        count++;
    }
    return tutti_comm_select(comm, list, count, &run->comms[run->action->other]);
}

/* Others could not make theirs. */
static void unmake(struct program_run *run, int made)
{
    if (run->meshes[made] != NULL)
        tutti_mesh_free(run->meshes[made]);
    else
        tutti_comm_free(run->comms[made]);
    run->meshes[made] = NULL;
    run->comms[made] = run->comms[made + 1] = NULL;
}

bool program_comms_make(struct program_run *run, tutti_comm *comm)
{
    const struct program_action *action = run->action;
    int group = run->program->families[action->family].group[run->rank], made = action->other, colour, key;
    tutti_status status;
    switch (action->make) {
    case MAKE_TOLERANT: /* what a fault does to one is another matter */
        status = run->program->fault.kind != FAULT_NONE ? tutti_comm_duplicate(comm, &run->comms[made])
                                                        : tutti_comm_tolerant(comm, &run->comms[made]);
        break;
    case MAKE_DUPLICATE: status = tutti_comm_duplicate(comm, &run->comms[made]); break;
    case MAKE_SELECT: status = make_selected(run, comm, group); break;
    case MAKE_MESH: status = make_mesh(run, comm, group); break;
    default:
        program_split(action, group, tutti_rank(comm), &colour, &key);
        status = tutti_comm_split(comm, colour, key, &run->comms[made]);
    }
    /* a mesh has a comm of its own, whose error it tells here */
    bool elsewhere = status != TUTTI_OK && action->make == MAKE_MESH && program_fault_suspects(run, action->family);
    bool whole = !elsewhere && program_ok(run, comm, status, "making comms");
    if (run->program->fault.kind != FAULT_NONE && !program_fault_made(run, made, action->family, whole)) {
        unmake(run, made);
        return false;
    }
    if (!whole || !check_made(run, made)) return false;
    return (action->make != MAKE_MESH || check_made(run, made + 1)) && program_settle(run, action->family, false);
}

bool program_comms_free(struct program_run *run)
{
    int family = run->action->family, sibling = run->program->families[family].sibling;
    int mesh = sibling >= 0 && sibling < family ? sibling : family;
    tutti_status status = TUTTI_OK;
    if (run->meshes[mesh] != NULL)
        tutti_mesh_free(run->meshes[mesh]);
    else
        status = tutti_comm_free(run->comms[family]);
    /* one that has made other calls, or fewer, may be found here */
    bool excused = status == TUTTI_ERR_MISMATCH && program_fault_hits(run, family);
    if (!program_check(run, status == TUTTI_OK || excused, "freeing a comm: %s", tutti_status_name(status)))
        return false;
    run->meshes[mesh] = NULL;
    run->comms[family] = NULL;
    if (sibling < 0) return program_settle(run, family, true);
    run->comms[sibling] = NULL;
    return program_settle(run, family, true) && program_settle(run, sibling, true);
}

bool program_comms_by_host(struct program_run *run, tutti_comm *comm)
{
    const struct program *program = run->program;
    const struct program_family *family = &program->families[run->action->family];
    int each = program->per_host == 0 ? program->size : program->per_host, place = 0, size = 0;
    tutti_comm *host = NULL;
    int32_t one = 1, sum = 0;
    if (!program_ok(run, comm, tutti_comm_by_host(comm, &host), "comm_by_host")) return false;
    for (int rank = 0; rank < program->size; rank++) {
        bool here = family->group[rank] == family->group[run->rank] && rank / each == run->rank / each;
        size += here;
        place += here && family->place[rank] < family->place[run->rank];
    }
    /* where one has failed to make it, the others would wait for it: all decide alike, wherever the victim is by now */
    if (program->fault.kind != FAULT_NONE && program->fault.kind != FAULT_STOP)
        return program_ok(run, comm, tutti_comm_free(host), "comm_free");
    tutti_status status = tutti_all_reduce(host, &one, &sum, 1, TUTTI_I32, TUTTI_SUM);
    return program_ok(run, host, status, "all_reduce on a host") &&
           program_check(run, tutti_rank(host) == place && tutti_size(host) == size && sum == size,
                         "rank %d of %d on its host, not %d of %d; sum %d", tutti_rank(host), tutti_size(host), place,
                         size, (int)sum) &&
           program_ok(run, run->world, tutti_comm_free(host), "comm_free") &&
           program_settle(run, run->action->family, false);
}
