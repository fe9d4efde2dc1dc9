/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages of random programs. Every rank knows all letters of an item: who sends how much to whom with which tag.
 */
#include "check_program.h"

struct letter {
    int source, target, tag;
    size_t count, shift;
};

/* Tags that several letters have, and letters that any of them may be, keep everyone's order. */
static bool in_order(const struct program_item *item)
{
    return item->any_tag || item->any_source || item->seed % 3 == 0;
}

static int letter_count(const struct program_item *item, int size)
{
    if (item->post == POST_SENDRECV) return size;
    return item->post == POST_STAR && size == 1 ? 0 : item->letters;
}

static struct letter letter_of(const struct program_run *run, const struct program_live *live, int number)
{
    const struct program_item *item = live->item;
    int size = live->size, group = run->program->families[item->family].group[run->rank];
    uint64_t seed = conf_hash(item->seed, (uint64_t)(5000 + group * 64 + number));
    struct letter letter = {.tag = item->tag + (item->seed % 3 == 0 ? number % 2 : number)};
    /* of senders that each have to wait for their turn, nobody may be asked for another one's tag */
    if (item->post == POST_STAR && item->any_source) letter.tag = item->tag;
    int far = program_pick(item->seed, 20 + (uint64_t)group, size);
    letter.source = item->post == POST_SENDRECV ? number : program_pick(seed, 1, size);
    letter.target = item->post == POST_SENDRECV ? (number + far) % size : program_pick(seed, 2, size);
    if (item->post == POST_STAR) {
        letter.target = far;
        letter.source = (far + 1 + number % (size - 1)) % size;
    }
    letter.count = program_pick(seed, 3, 3) == 0 ? item->one.count
                                                 : (size_t)program_pick(seed, 4, (int)item->one.count + 1);
    letter.shift = (size_t)program_pick(seed, 5 + (uint64_t)live->turn, PROGRAM_SHIFTS);
    return letter;
}

/* ---- Buffers ----------------------------------------------------------------------------------------------------- */

/* Of a letter that goes or one that comes; which one comes may turn out later. */
static struct program_piece *place(struct program_run *run, struct program_live *live, int number, bool sends)
{
    struct letter letter = letter_of(run, live, number);
    struct program_piece *piece = &live->pieces[live->piece_count++];
    *piece = (struct program_piece){
        .one = live->item->one, .table = program_table(live->item), .letter = number, .sends = sends};
    piece->rank = live->rank;
    piece->one.place = CONF_OUT_OF_PLACE;
    piece->layout.in_used = sends;
    piece->layout.out_used = !sends;
    if (sends)
        piece->layout.in_count = letter.count;
    else
        piece->layout.out_count = live->item->one.count;
    uint64_t seed = conf_hash(live->item->seed, (uint64_t)(run->rank * 200 + number * 2 + sends));
    if (!program_check(run, program_piece_place(piece, run->memory, seed), "no memory")) return NULL;
    program_piece_fill(piece, letter.shift);
    live->got[live->piece_count - 1] = (tutti_message){.source = -1};
    return piece;
}

static tutti_message *message_of(struct program_live *live, const struct program_piece *piece)
{
    return &live->got[piece - live->pieces];
}

/* ---- Blocking calls ---------------------------------------------------------------------------------------------- */

static bool fits(const struct letter *letter, const tutti_message *message, tutti_type type)
{
    return message->source == letter->source && message->tag == letter->tag && message->type == type &&
           message->count == letter->count;
}

/* With a look first, or with a buffer that is too small first. */
static bool receive(struct program_run *run, struct program_live *live, int number)
{
    struct letter letter = letter_of(run, live, number);
    const struct program_item *item = live->item;
    struct program_piece *piece = place(run, live, number, false);
    uint64_t seed = conf_hash(item->seed, (uint64_t)number + 300);
    int from = item->any_source ? TUTTI_ANY_SOURCE : letter.source, tag = item->any_tag ? TUTTI_ANY_TAG : letter.tag;
    tutti_comm *comm = live->comm;
    tutti_type type = item->one.type;
    tutti_message message;
    if (piece == NULL) return false;
    enum program_fault_kind fault = run->program->fault.kind;
    bool sure = fault != FAULT_FREE && fault != FAULT_LEAVE; /* else a look may be in vain, which breaks nothing */
    if (seed % 3 == 0 && sure) {
        tutti_status status = TUTTI_IN_PROGRESS;
        for (uint64_t i = 0; i < seed / 3 % 3 && status == TUTTI_IN_PROGRESS; i++)
            status = tutti_try_probe(comm, from, tag, &message);
        if (status == TUTTI_IN_PROGRESS) status = tutti_probe(comm, from, tag, &message);
        if (!program_ok(run, comm, status, "probe")) return false;
        if (item->post == POST_SERIAL &&
            !program_check(run, fits(&letter, &message, type), "letter %d: probe gives %zu from %d with tag %d", number,
                           message.count, message.source, message.tag))
            return false;
        from = message.source;
        tag = message.tag;
    }
    if (seed % 5 == 0 && item->post == POST_SERIAL && letter.count > 0) {
        tutti_status status = tutti_recv(comm, piece->out_pointer, letter.count - 1, type, from, tag, NULL);
        if (status != TUTTI_ERR_TRUNCATED && program_fault_excuses(run, item->family, status, "recv")) return false;
        program_fault_suspects(run, item->family); /* where the comm is broken by then, this counts as told */
        if (!program_check(run, status == TUTTI_ERR_TRUNCATED, "letter %d into a smaller buffer: %s", number,
                           tutti_status_name(status)))
            return false;
    }
    return program_ok(
        run, comm,
        tutti_recv_message(comm, piece->out_pointer, item->one.count, type, from, tag, message_of(live, piece)),
        "recv_message");
}

static bool send(struct program_run *run, struct program_live *live, int number)
{
    struct letter letter = letter_of(run, live, number);
    struct program_piece *piece = place(run, live, number, true);
    return piece != NULL && program_ok(run, live->comm,
                                       tutti_send(live->comm, piece->in_pointer, letter.count, live->item->one.type,
                                                  letter.target, letter.tag),
                                       "send");
}

static bool send_to_self(struct program_run *run, struct program_live *live, int number)
{
    struct letter letter = letter_of(run, live, number);
    struct program_piece *in = place(run, live, number, true), *out = place(run, live, number, false);
    size_t received = 0;
    if (in == NULL || out == NULL) return false;
    *message_of(live, out) = (tutti_message){letter.source, letter.tag, live->item->one.type, letter.count};
    return program_ok(run, live->comm,
                      tutti_sendrecv(live->comm, in->in_pointer, letter.count, letter.target, letter.tag,
                                     out->out_pointer, live->item->one.count, letter.source, letter.tag,
                                     live->item->one.type, &received),
                      "sendrecv with itself") &&
           program_check(run, received == letter.count, "letter %d to itself: %zu came", number, received);
}

static bool one_by_one(struct program_run *run, struct program_live *live, int count)
{
    int rank = live->rank;
    for (int i = 0; i < count; i++) {
        struct letter letter = letter_of(run, live, i);
        bool good = true;
        if (letter.source == rank && letter.target == rank)
            good = send_to_self(run, live, i);
        else if (letter.source == rank)
            good = send(run, live, i);
        else if (letter.target == rank)
            good = receive(run, live, i);
        if (!good) return false;
    }
    return true;
}

/* ---- Around a ring ----------------------------------------------------------------------------------------------- */

static void refill(struct program_run *run, struct program_live *live)
{
    int rank = live->rank;
    program_piece_fill(&live->pieces[0], letter_of(run, live, rank).shift);
    program_piece_fill(&live->pieces[1], 0);
}

static bool around(struct program_run *run, struct program_live *live)
{
    tutti_comm *comm = live->comm;
    const struct program_item *item = live->item;
    int rank = tutti_rank(comm), size = tutti_size(comm), from = 0;
    while (letter_of(run, live, from).target != rank && from < size - 1) from++;
    struct letter goes = letter_of(run, live, rank), comes = letter_of(run, live, from);
    const struct program_piece *in = place(run, live, rank, true), *out = place(run, live, from, false);
    if (in == NULL || out == NULL) return false;
    size_t most = item->one.count;
    if (run->action->kind == DO_RUN)
        return program_ok(run, comm,
                          tutti_sendrecv(comm, in->in_pointer, goes.count, goes.target, goes.tag, out->out_pointer,
                                         most, comes.source, comes.tag, item->one.type, &live->received),
                          "sendrecv");
    if (item->prepared) tutti_prepared(comm);
    return program_ok(run, comm,
                      tutti_sendrecv_start(comm, in->in_pointer, goes.count, goes.target, goes.tag, out->out_pointer,
                                           most, comes.source, comes.tag, item->one.type, &live->received,
                                           &live->ops[live->op_count++]),
                      "sendrecv_start");
}

bool program_letters_again(struct program_run *run, struct program_live *live)
{
    live->received = SIZE_MAX;
    live->turn++;
    refill(run, live);
    return program_ok(run, live->comm, tutti_start(live->ops[0]), "start again");
}

/* ---- Many at once ------------------------------------------------------------------------------------------------ */

static tutti_status post_one(struct program_run *run, struct program_live *live, int number, bool sends, tutti_op *op)
{
    bool grouped = op == NULL;
    struct letter letter = letter_of(run, live, number);
    const struct program_item *item = live->item;
    struct program_piece *piece = place(run, live, number, sends);
    tutti_comm *comm = live->comm;
    tutti_type type = item->one.type;
    if (piece == NULL) return TUTTI_ERR_MEMORY;
    if (sends)
        return grouped ? tutti_send(comm, piece->in_pointer, letter.count, type, letter.target, letter.tag)
                       : tutti_send_start(comm, piece->in_pointer, letter.count, type, letter.target, letter.tag, op);
    int from = item->any_source ? TUTTI_ANY_SOURCE : letter.source, tag = item->any_tag ? TUTTI_ANY_TAG : letter.tag;
    tutti_message *message = message_of(live, piece);
    return grouped ? tutti_recv_message(comm, piece->out_pointer, item->one.count, type, from, tag, message)
                   : tutti_recv_start(comm, piece->out_pointer, item->one.count, type, from, tag, message, op);
}

static tutti_status post_or_drop(struct program_run *run, struct program_live *live, int number, bool sends)
{
    bool grouped = live->item->post == POST_GROUP;
    tutti_op *op = grouped ? NULL : &live->ops[live->op_count];
    tutti_status status = post_one(run, live, number, sends, op);
    if (status != TUTTI_OK || grouped) return status;
    if (live->item->drops == (sends ? DROPS_SENDS : DROPS_RECEIVES)) return tutti_drop(*op);
    live->op_count++;
    return TUTTI_OK;
}

/* Sends, receives or both, in this rank's own order if they may. */
static bool post(struct program_run *run, struct program_live *live, bool sends, bool receives)
{
    int rank = live->rank, count = letter_count(live->item, live->size);
    bool ordered = in_order(live->item);
    int first = ordered || count == 0 ? 0 : program_pick(live->item->seed, 700 + (uint64_t)run->rank, count);
    bool send_first = program_pick(live->item->seed, 800 + (uint64_t)run->rank, 2) == 0;
    for (int i = 0; i < 2 * count; i++) {
        int number = (first + i / 2) % count;
        bool goes = (i % 2 == 0) == send_first;
        struct letter letter = letter_of(run, live, number);
        if (goes ? !sends || letter.source != rank : !receives || letter.target != rank) continue;
        if (!program_ok(run, live->comm, post_or_drop(run, live, number, goes), "posting a letter")) return false;
    }
    return true;
}

bool program_letters_post_in_group(struct program_run *run, struct program_live *live)
{
    live->received = SIZE_MAX;
    return post(run, live, true, true);
}

static bool post_group(struct program_run *run, struct program_live *live)
{
    tutti_comm *comm = live->comm;
    if (!program_ok(run, comm, tutti_group_begin(comm), "group_begin") || !post(run, live, true, true)) return false;
    if (run->action->kind == DO_START)
        return program_ok(run, comm, tutti_group_end_start(comm, &live->ops[live->op_count++]), "group_end_start");
    return program_ok(run, comm, tutti_group_end(comm), "group_end");
}

bool program_letters_post(struct program_run *run, struct program_live *live, bool second)
{
    enum program_post how = live->item->post;
    live->received = SIZE_MAX;
    bool good;
    switch (how) {
    case POST_SERIAL:
    case POST_STAR: good = one_by_one(run, live, letter_count(live->item, live->size)); break;
    case POST_SENDRECV: good = around(run, live); break;
    case POST_GROUP: good = post_group(run, live); break;
    default:
        good = post(run, live, how == POST_EACH || (how == POST_SEND_FIRST) != second,
                    how == POST_EACH || (how == POST_RECV_FIRST) != second);
    }
    if (!good || !live->item->any_source || !live->item->any_tag) return good;
    return program_ok(run, live->comm, tutti_barrier(live->comm), "barrier");
}

/* ---- What came --------------------------------------------------------------------------------------------------- */

/* The letter that a receive got: the first from there with that tag which none before it got. */
static int find(struct program_run *run, struct program_live *live, const tutti_message *message, const bool *taken)
{
    int rank = live->rank, count = letter_count(live->item, live->size);
    for (int i = 0; i < count; i++) {
        struct letter letter = letter_of(run, live, i);
        if (taken[i] || letter.target != rank || letter.source != message->source) continue;
        if (live->item->any_tag || letter.tag == message->tag) return i;
    }
    return -1;
}

static bool check_piece(struct program_run *run, struct program_live *live, struct program_piece *piece)
{
    char text[200] = "";
    return program_check(run, program_piece_check(piece, text, sizeof text), "item %d, letter %d that %s, %s",
                         live->item->number, piece->letter, piece->sends ? "goes" : "comes", text);
}

static bool check_received(struct program_run *run, struct program_live *live, struct program_piece *piece, bool *taken)
{
    tutti_message message = *message_of(live, piece);
    if (live->item->post == POST_SENDRECV) {
        struct letter letter = letter_of(run, live, piece->letter);
        message = (tutti_message){letter.source, letter.tag, live->item->one.type, live->received};
    }
    int number = find(run, live, &message, taken);
    if (!program_check(run, number >= 0, "item %d: nobody has sent %zu elements from rank %d with tag %d",
                       live->item->number, message.count, message.source, message.tag))
        return false;
    struct letter letter = letter_of(run, live, number);
    taken[number] = true;
    piece->letter = number;
    piece->shift = letter.shift;
    piece->layout.blocks = 1;
    piece->layout.block[0] = (struct conf_block){.count = letter.count, .from = letter.source};
    if (!program_check(run, fits(&letter, &message, live->item->one.type),
                       "item %d, letter %d: %zu came from %d with tag %d", live->item->number, number, message.count,
                       message.source, message.tag))
        return false;
    return check_piece(run, live, piece);
}

bool program_letters_check(struct program_run *run, struct program_live *live)
{
    bool taken[PROGRAM_LETTERS + PROGRAM_RANKS] = {false};
    bool open = live->item->drops == DROPS_RECEIVES;
    for (int i = 0; i < live->piece_count; i++) {
        struct program_piece *piece = &live->pieces[i];
        if (open && !piece->sends && !live->dropped) continue;  /* they end when they will */
        if (open && !piece->sends && live->got[i].source < 0) { /* or never did */
            if (!check_piece(run, live, piece)) return false;
            continue;
        }
        if (piece->sends ? !check_piece(run, live, piece) : !check_received(run, live, piece, taken)) return false;
    }
    return true;
}
