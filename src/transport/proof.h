/* SPDX-License-Identifier: Apache-2.0
 *
 * Both ends of a connection prove to each other that they have the job's key, before they send anything else.
 *
 *     who connects                        who accepts
 *     HELLO  who, to whom, nonce, mac ->                     104 bytes
 *                                     <-  CHALLENGE nonce, mac
 *     PROOF  mac                      ->                     of both nonces: this cannot be a recording
 *                                     <-  CONFIRM mac        the connection is taken
 *
 * Every hello to the right job is challenged, with or without the key: so a rank with a wrong key notices that the
 * other end has another one, and a stranger cannot find out whether its mac was right. Challenges are new for every
 * connection: only the proof identifies the connecting end.
 *
 * A mac is a BLAKE2b hash under a key derived from the job's key and the job's name, over a label of its own and all
 * messages before. Messages have fixed sizes and are read to their last byte and no further: the bytes behind them are
 * for the layer above. Nothing here blocks or allocates.
 *
 * This ensures that nobody without the key can take part or make a rank interpret a byte. It gives no secrecy, and no
 * protection against an attacker who can change packets under way.
 */
#ifndef TTI_TRANSPORT_PROOF_H
#define TTI_TRANSPORT_PROOF_H

#include "base/key.h"
#include <stddef.h>
#include <stdint.h>

enum { TTI_NONCE_BYTES = 32, TTI_MAC_BYTES = 32 };

enum tti_proof_purpose { TTI_PROOF_RENDEZVOUS = 1, TTI_PROOF_MESH = 2 };

/* Sent as it is in memory, little-endian. */
struct tti_hello {
    uint64_t magic;
    uint16_t version;
    uint8_t purpose, stream;
    uint32_t epoch;
    int32_t from, to, size;
    uint32_t reserved;
    uint64_t job; /* a hash of the job's name: jobs are told apart before keys */
    unsigned char nonce[TTI_NONCE_BYTES], mac[TTI_MAC_BYTES];
};

struct tti_challenge {
    uint64_t magic;
    uint16_t version, reserved[3];
    unsigned char nonce[TTI_NONCE_BYTES], mac[TTI_MAC_BYTES];
};

enum tti_proof_state {
    TTI_PROOF_RUNNING,
    TTI_PROOF_DONE,
    TTI_PROOF_FAILED /* `why` gives the reason */
};

/* The part of one job that all its connections share. */
struct tti_proof_job {
    unsigned char key[TTI_KEY_BYTES]; /* derived */
    uint64_t job;
    uint32_t epoch;
    int rank, size; /* of this process's rank */
};

/* One connection. */
struct tti_proof {
    const struct tti_proof_job *job;
    bool greeted;       /* its hello was made with the key, maybe by another sender: it can be a recording */
    bool known;         /* the other end has shown the key, by an answer to this end's nonce */
    bool other_key;     /* it has shown that it has another key */
    bool other_service; /* another service answered, not this library */
    enum tti_proof_state state;
    uint8_t purpose;
    int step;
    struct tti_hello hello;
    struct tti_challenge challenge;
    unsigned char proof[TTI_MAC_BYTES];
    unsigned char in[sizeof(struct tti_hello)], out[sizeof(struct tti_hello)];
    size_t in_used, in_needed, out_used, out_bytes;
    int system_errno;
    const char *why;
};

/* Derives the job's proof key. Called once per rank and job. */
void tti_proof_setup(struct tti_proof_job *job, const struct tti_key *key, const char *name, uint32_t epoch, int rank,
                     int size);
void tti_proof_connect(struct tti_proof *proof, const struct tti_proof_job *job, enum tti_proof_purpose purpose, int to,
                       int stream);
void tti_proof_accept(struct tti_proof *proof, const struct tti_proof_job *job, enum tti_proof_purpose purpose);

/* Pure: takes bytes that came (at most proof->in_needed - in_used of them), and does the next step. Bytes to be sent
 * lie in out, from out_used to out_bytes. */
void tti_proof_feed(struct tti_proof *proof, const void *bytes, size_t count);
/* Does the same on a non-blocking socket: sends and receives as much as possible, and returns the state. */
enum tti_proof_state tti_proof_step(struct tti_proof *proof, int fd);

#endif
