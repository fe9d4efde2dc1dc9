/* SPDX-License-Identifier: Apache-2.0
 *
 * Tries all addresses of a door, one a little after the other, so that an address that swallows packets costs little
 * time. The first on which the other end shows the key is kept, and the others are closed before this end shows its
 * own: so a door never has two proven connections for one purpose. When all have failed, all are tried again, until the
 * caller gives up: the other end may start later.
 */
#include "base/alloc.h"
#include "base/clock.h"
#include "transport/door.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

#define STAGGER_NS ((int64_t)50 * 1000000)
#define PAUSE_NS ((int64_t)2 * 1000000)
#define OTHERS_NS ((int64_t)500 * 1000000) /* for other addresses, after one belonged to an endpoint with another key */
#define PAUSE_MOST_NS ((int64_t)100 * 1000000)

struct tti_knock *tti_knock_new(const struct tti_proof_job *job, enum tti_proof_purpose purpose, int to, int stream,
                                const struct tti_address_list *list)
{
    struct tti_knock *knock = tti_calloc(1, sizeof *knock + (size_t)list->count * sizeof *knock->attempts);
    if (knock == NULL) return NULL;
    knock->job = job;
    knock->purpose = purpose;
    knock->to = to;
    knock->stream = stream;
    knock->list = *list;
    for (int i = 0; i < list->count; i++) knock->attempts[i].fd = -1;
    return knock;
}

static void close_all(struct tti_knock *knock)
{
    for (int i = 0; i < knock->list.count; i++) {
        if (knock->attempts[i].fd >= 0) close(knock->attempts[i].fd);
        knock->attempts[i].fd = -1;
    }
}

void tti_knock_free(struct tti_knock *knock)
{
    close_all(knock);
    tti_free(knock);
}

static void give_up(struct tti_attempt *attempt, int why, const char *text)
{
    if (attempt->fd >= 0) close(attempt->fd);
    attempt->fd = -1;
    attempt->state = TTI_ATTEMPT_FAILED;
    attempt->system_errno = why;
    attempt->why = text;
}

static void start(struct tti_knock *knock, int at, int64_t now_ns)
{
    struct tti_attempt *attempt = &knock->attempts[at];
    *attempt = (struct tti_attempt){.fd = tti_connect(&knock->list.at[at]), .since_ns = now_ns};
    if (attempt->fd < 0)
        give_up(attempt, errno, NULL);
    else
        attempt->state = TTI_ATTEMPT_CONNECTING;
}

static void check_connected(struct tti_knock *knock, struct tti_attempt *attempt)
{
    int why = tti_connect_result(attempt->fd);
    if (why == EINPROGRESS) return;
    if (why != 0) {
        give_up(attempt, why, NULL);
        return;
    }
    tti_proof_connect(&attempt->proof, knock->job, knock->purpose, knock->to, knock->stream);
    attempt->state = TTI_ATTEMPT_PROVING;
}

/* The other end has shown the key: keeps this attempt and no other. */
static void keep_only(struct tti_knock *knock, const struct tti_attempt *kept)
{
    for (int i = 0; i < knock->list.count; i++) {
        struct tti_attempt *attempt = &knock->attempts[i];
        if (attempt != kept && attempt->state != TTI_ATTEMPT_FAILED) give_up(attempt, 0, "was not needed");
    }
    knock->started = knock->list.count;
}

/* Takes one step of the proof. The other attempts are closed between the other end's proof and this end's. */
static void prove(struct tti_knock *knock, struct tti_attempt *attempt, int64_t now_ns)
{
    bool known = attempt->proof.known;
    enum tti_proof_state state = tti_proof_step(&attempt->proof, attempt->fd);
    if (!known && attempt->proof.known) keep_only(knock, attempt);
    if (attempt->proof.other_key && knock->other_key_ns == 0) knock->other_key_ns = now_ns;
    if (state == TTI_PROOF_FAILED) {
        knock->refusals++;
        knock->other_service |= attempt->proof.other_service;
        give_up(attempt, attempt->proof.system_errno, attempt->proof.why);
    } else if (state == TTI_PROOF_RUNNING && now_ns - attempt->since_ns > TTI_PROOF_NS) {
        give_up(attempt, ETIMEDOUT, NULL);
    }
}

static bool all_failed(const struct tti_knock *knock)
{
    for (int i = 0; i < knock->list.count; i++)
        if (knock->attempts[i].state != TTI_ATTEMPT_FAILED) return false;
    return true;
}

bool tti_knock_wrong_key(const struct tti_knock *knock)
{
    if (knock->other_key_ns == 0) return false;
    return all_failed(knock) || tti_now_ns() - knock->other_key_ns > OTHERS_NS;
}

static void start_due(struct tti_knock *knock, int64_t now_ns)
{
    if (now_ns < knock->next_ns) return;
    if (knock->started < knock->list.count) {
        start(knock, knock->started++, now_ns);
        bool failed = knock->attempts[knock->started - 1].state == TTI_ATTEMPT_FAILED;
        knock->next_ns = failed ? now_ns : now_ns + STAGGER_NS;
        if (knock->started == knock->list.count) knock->next_ns = now_ns;
    } else if (all_failed(knock)) {
        int64_t pause = PAUSE_NS << (knock->rounds < 8 ? knock->rounds : 8);
        knock->rounds++;
        knock->started = 0;
        knock->next_ns = now_ns + (pause < PAUSE_MOST_NS ? pause : PAUSE_MOST_NS);
    }
}

int tti_knock_step(struct tti_knock *knock, struct tti_address *used)
{
    int64_t now_ns = tti_now_ns();
    start_due(knock, now_ns);
    for (int i = 0; i < knock->list.count; i++) {
        struct tti_attempt *attempt = &knock->attempts[i];
        if (attempt->state == TTI_ATTEMPT_CONNECTING) check_connected(knock, attempt);
        if (attempt->state == TTI_ATTEMPT_PROVING) prove(knock, attempt, now_ns);
        if (attempt->state != TTI_ATTEMPT_PROVING || attempt->proof.state != TTI_PROOF_DONE) continue;
        int fd = attempt->fd;
        attempt->fd = -1;
        attempt->state = TTI_ATTEMPT_IDLE;
        *used = knock->list.at[i];
        close_all(knock);
        return fd;
    }
    return -1;
}

int tti_knock_poll_set(const struct tti_knock *knock, struct pollfd *set)
{
    int count = 0;
    for (int i = 0; i < knock->list.count; i++) {
        const struct tti_attempt *attempt = &knock->attempts[i];
        bool out = attempt->state == TTI_ATTEMPT_CONNECTING || attempt->proof.out_used < attempt->proof.out_bytes;
        if (attempt->fd >= 0) set[count++] = (struct pollfd){.fd = attempt->fd, .events = out ? POLLOUT : POLLIN};
    }
    return count;
}

static const char *outcome(const struct tti_attempt *attempt)
{
    if (attempt->why != NULL && attempt->system_errno == 0) return attempt->why;
    if (attempt->system_errno != 0) return strerror(attempt->system_errno);
    if (attempt->state == TTI_ATTEMPT_CONNECTING) return "has not answered";
    if (attempt->state == TTI_ATTEMPT_PROVING) return "has not shown its key";
    return "was not tried yet";
}

const char *tti_knock_text(const struct tti_knock *knock, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < knock->list.count && used < bytes; i++) {
        char address[TTI_ADDRESS_TEXT];
        int wrote = snprintf(text + used, bytes - used, "%s%s: %s", used > 0 ? ", " : "",
                             tti_address_text(&knock->list.at[i], address), outcome(&knock->attempts[i]));
        used += wrote > 0 ? (size_t)wrote : 0;
    }
    return text;
}
