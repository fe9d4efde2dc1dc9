/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/proof.h"

#include <assert.h>
#include <errno.h>
#include <sodium.h>
#include <string.h>
#include <sys/socket.h>

#define MAGIC 0x7063742d74747574u /* "tutt-tcp" */
enum { VERSION = 2 };

static_assert(sizeof(struct tti_hello) == 104, "travels as it lies");
static_assert(sizeof(struct tti_challenge) == 80, "travels as it lies");
static_assert(crypto_generichash_BYTES == TTI_MAC_BYTES && crypto_generichash_KEYBYTES == TTI_KEY_BYTES, "BLAKE2b-256");
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "structs travel as they lie, little-endian");

/* The message for which each side waits, in order. A connection is done when the last one has come. */
enum { HELLO, CHALLENGE, PROOF, CONFIRM };

/* ---- Hashes ---------------------------------------------------------------------------------------------------- */

static const char *const labels[] = {"tutti hello", "tutti challenge", "tutti proof", "tutti confirm"};

/* Computes the mac of a step, which covers all messages before it. */
static void mac_of(const struct tti_proof *proof, int step, unsigned char mac[TTI_MAC_BYTES])
{
    crypto_generichash_state state;
    crypto_generichash_init(&state, proof->job->key, sizeof proof->job->key, TTI_MAC_BYTES);
    crypto_generichash_update(&state, (const unsigned char *)labels[step], strlen(labels[step]) + 1);
    crypto_generichash_update(&state, (const unsigned char *)&proof->hello, offsetof(struct tti_hello, mac));
    if (step >= CHALLENGE) crypto_generichash_update(&state, proof->challenge.nonce, TTI_NONCE_BYTES);
    if (step >= PROOF) crypto_generichash_update(&state, proof->challenge.mac, TTI_MAC_BYTES);
    if (step >= CONFIRM) crypto_generichash_update(&state, proof->proof, TTI_MAC_BYTES);
    crypto_generichash_final(&state, mac, TTI_MAC_BYTES);
}

static bool mac_holds(const struct tti_proof *proof, int step, const unsigned char mac[TTI_MAC_BYTES])
{
    unsigned char own[TTI_MAC_BYTES];
    mac_of(proof, step, own);
    return sodium_memcmp(own, mac, sizeof own) == 0;
}

void tti_proof_setup(struct tti_proof_job *job, const struct tti_key *key, const char *name, uint32_t epoch, int rank,
                     int size)
{
    static const char label[] = "tutti job";
    crypto_generichash_state state;
    *job = (struct tti_proof_job){.epoch = epoch, .rank = rank, .size = size};
    crypto_generichash_init(&state, key->bytes, sizeof key->bytes, sizeof job->key);
    crypto_generichash_update(&state, (const unsigned char *)label, sizeof label);
    crypto_generichash_update(&state, (const unsigned char *)name, strlen(name));
    crypto_generichash_final(&state, job->key, sizeof job->key);
    unsigned char hash[crypto_generichash_BYTES];
    crypto_generichash(hash, sizeof hash, (const unsigned char *)name, strlen(name), NULL, 0);
    memcpy(&job->job, hash, sizeof job->job);
}

/* ---- Steps ----------------------------------------------------------------------------------------------------- */

static void fail(struct tti_proof *proof, const char *why)
{
    proof->state = TTI_PROOF_FAILED;
    proof->why = why;
}

static void say(struct tti_proof *proof, const void *message, size_t bytes)
{
    assert(proof->out_used == proof->out_bytes && bytes <= sizeof proof->out);
    memcpy(proof->out, message, bytes);
    proof->out_used = 0;
    proof->out_bytes = bytes;
}

static void expect(struct tti_proof *proof, int step)
{
    static const size_t sizes[] = {[HELLO] = sizeof(struct tti_hello),
                                   [CHALLENGE] = sizeof(struct tti_challenge),
                                   [PROOF] = TTI_MAC_BYTES,
                                   [CONFIRM] = TTI_MAC_BYTES};
    proof->step = step;
    proof->in_used = 0;
    proof->in_needed = sizes[step];
}

void tti_proof_connect(struct tti_proof *proof, const struct tti_proof_job *job, enum tti_proof_purpose purpose, int to,
                       int stream)
{
    *proof = (struct tti_proof){.job = job, .purpose = (uint8_t)purpose};
    proof->hello = (struct tti_hello){.magic = MAGIC,
                                      .version = VERSION,
                                      .purpose = (uint8_t)purpose,
                                      .stream = (uint8_t)stream,
                                      .epoch = job->epoch,
                                      .from = job->rank,
                                      .to = to,
                                      .size = job->size,
                                      .job = job->job};
    randombytes_buf(proof->hello.nonce, sizeof proof->hello.nonce);
    mac_of(proof, HELLO, proof->hello.mac);
    say(proof, &proof->hello, sizeof proof->hello);
    expect(proof, CHALLENGE);
}

void tti_proof_accept(struct tti_proof *proof, const struct tti_proof_job *job, enum tti_proof_purpose purpose)
{
    *proof = (struct tti_proof){.job = job, .purpose = (uint8_t)purpose};
    expect(proof, HELLO);
}

static void refuse_key(struct tti_proof *proof)
{
    proof->other_key = true;
    fail(proof, "has another key");
}

/* Returns NULL, or what is wrong with a hello. The texts follow "a connection from …". */
static const char *judge_stranger(const struct tti_proof *proof)
{
    const struct tti_hello *hello = &proof->hello;
    if (hello->magic != MAGIC) return "is not from a rank";
    if (hello->version != VERSION) return "is from another version of the library";
    if (hello->job != proof->job->job) return "is from another job, or has another name for this one";
    return NULL;
}

/* Does the same for a hello that was made with the key. */
static const char *judge_known(const struct tti_proof *proof)
{
    const struct tti_hello *hello = &proof->hello;
    const struct tti_proof_job *job = proof->job;
    if (hello->purpose != proof->purpose) return "came to the wrong port of the job";
    if (hello->size != job->size) return "is from a rank that was told another number of ranks";
    if (hello->epoch != job->epoch) return "is from another epoch of the job";
    if (hello->to != job->rank) return "was meant for another rank";
    if (hello->from < 0 || hello->from >= job->size || hello->from == job->rank) return "is from a rank out of range";
    if (hello->reserved != 0) return "is from another version of the library";
    return NULL;
}

static void take_hello(struct tti_proof *proof)
{
    memcpy(&proof->hello, proof->in, sizeof proof->hello);
    const char *why = judge_stranger(proof);
    bool holds = why == NULL && mac_holds(proof, HELLO, proof->hello.mac);
    if (holds) why = judge_known(proof);
    if (why != NULL) {
        fail(proof, why);
        return;
    }
    proof->greeted = holds;
    proof->other_key = !holds;
    proof->challenge = (struct tti_challenge){.magic = MAGIC, .version = VERSION};
    randombytes_buf(proof->challenge.nonce, sizeof proof->challenge.nonce);
    mac_of(proof, CHALLENGE, proof->challenge.mac);
    say(proof, &proof->challenge, sizeof proof->challenge);
    expect(proof, PROOF);
}

/* Bytes that do not begin as a challenge come from another service, which has no key at all. The text follows an
 * address. */
static void judge_listener(struct tti_proof *proof)
{
    uint64_t magic;
    if (proof->step != CHALLENGE || proof->in_used < sizeof magic) return;
    memcpy(&magic, proof->in, sizeof magic);
    proof->other_service = magic != MAGIC;
    if (proof->other_service) fail(proof, "something else than a rank answers there");
}

static void take_challenge(struct tti_proof *proof)
{
    memcpy(&proof->challenge, proof->in, sizeof proof->challenge);
    if (proof->challenge.version != VERSION) {
        fail(proof, "has another version of the library");
        return;
    }
    if (!mac_holds(proof, CHALLENGE, proof->challenge.mac)) {
        refuse_key(proof);
        return;
    }
    proof->known = true;
    mac_of(proof, PROOF, proof->proof);
    say(proof, proof->proof, sizeof proof->proof);
    expect(proof, CONFIRM);
}

static void take_proof(struct tti_proof *proof)
{
    unsigned char confirm[TTI_MAC_BYTES];
    memcpy(proof->proof, proof->in, sizeof proof->proof);
    bool holds = mac_holds(proof, PROOF, proof->proof);
    if (!holds || !proof->greeted) {
        refuse_key(proof);
        return;
    }
    proof->known = true;
    mac_of(proof, CONFIRM, confirm);
    say(proof, confirm, sizeof confirm);
    proof->in_needed = proof->in_used = 0; /* done when the confirmation was sent */
}

static void take_confirm(struct tti_proof *proof)
{
    proof->in_needed = proof->in_used = 0;
    if (mac_holds(proof, CONFIRM, proof->in))
        proof->state = TTI_PROOF_DONE;
    else
        refuse_key(proof);
}

static void (*const takers[])(struct tti_proof *proof) = {
    [HELLO] = take_hello, [CHALLENGE] = take_challenge, [PROOF] = take_proof, [CONFIRM] = take_confirm};

void tti_proof_feed(struct tti_proof *proof, const void *bytes, size_t count)
{
    assert(count <= proof->in_needed - proof->in_used);
    if (count == 0 || proof->state != TTI_PROOF_RUNNING) return;
    memcpy(proof->in + proof->in_used, bytes, count);
    proof->in_used += count;
    judge_listener(proof);
    if (proof->state == TTI_PROOF_RUNNING && proof->in_used == proof->in_needed) takers[proof->step](proof);
}

/* ---- On a socket ----------------------------------------------------------------------------------------------- */

static void lose(struct tti_proof *proof, int why)
{
    if (proof->other_key)
        refuse_key(proof);
    else
        fail(proof, why == 0 ? "closed before it had proved its key" : "was lost before it had proved its key");
    proof->system_errno = why;
}

/* Both functions return true if they moved something. */
static bool send_some(struct tti_proof *proof, int fd)
{
    if (proof->out_used == proof->out_bytes) return false;
    ssize_t sent = send(fd, proof->out + proof->out_used, proof->out_bytes - proof->out_used,
                        MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) lose(proof, errno);
    if (sent <= 0) return false;
    proof->out_used += (size_t)sent;
    if (proof->out_used == proof->out_bytes && proof->in_needed == 0) proof->state = TTI_PROOF_DONE;
    return true;
}

static bool receive_some(struct tti_proof *proof, int fd)
{
    unsigned char bytes[sizeof proof->in];
    size_t wanted = proof->in_needed - proof->in_used;
    if (wanted == 0) return false;
    ssize_t got = recv(fd, bytes, wanted, MSG_DONTWAIT);
    if (got == 0) lose(proof, 0);
    if (got < 0 && errno != EAGAIN && errno != EINTR) lose(proof, errno);
    if (got <= 0) return false;
    tti_proof_feed(proof, bytes, (size_t)got);
    return true;
}

enum tti_proof_state tti_proof_step(struct tti_proof *proof, int fd)
{
    bool moved = true;
    while (moved && proof->state == TTI_PROOF_RUNNING) {
        moved = send_some(proof, fd);
        if (proof->state == TTI_PROOF_RUNNING) moved |= receive_some(proof, fd);
    }
    return proof->state;
}
