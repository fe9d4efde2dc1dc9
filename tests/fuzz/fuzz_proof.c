/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz: runs=30000 */
/* The proof of the key, on both sides: whatever comes, without the key it never ends well, and nothing is written past its
 * place. The first byte chooses the side, and whether the hello's plain fields are made right. */
#include "base/key.h"
#include "transport/proof.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void feed(struct tti_proof *proof, const uint8_t *data, size_t bytes)
{
    while (bytes > 0 && proof->state == TTI_PROOF_RUNNING && proof->in_needed > proof->in_used) {
        size_t wanted = proof->in_needed - proof->in_used;
        size_t given = bytes < wanted ? bytes : wanted;
        if (given > 7 && bytes % 3 == 0) given = 7; /* in pieces, too */
        tti_proof_feed(proof, data, given);
        proof->out_used = proof->out_bytes; /* as if it had been sent */
        data += given;
        bytes -= given;
    }
    if (proof->state == TTI_PROOF_DONE || proof->in_used > proof->in_needed) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct tti_proof_job job, other;
    static bool ready;
    struct tti_proof proof, model;
    if (!ready) {
        tutti_error error;
        struct tti_key key, wrong;
        if (tti_key_random(&key, &error) != TUTTI_OK || tti_key_random(&wrong, &error) != TUTTI_OK) abort();
        tti_proof_setup(&job, &key, "fuzz", 0, 0, 4);
        tti_proof_setup(&other, &wrong, "fuzz", 0, 1, 4);
        ready = true;
    }
    if (bytes == 0) return 0;
    uint8_t how = data[0];
    data++;
    bytes--;
    if ((how & 1) != 0) {
        tti_proof_connect(&proof, &job, TTI_PROOF_MESH, 1, how >> 4);
        proof.out_used = proof.out_bytes;
    } else {
        tti_proof_accept(&proof, &job, TTI_PROOF_MESH);
        if ((how & 2) != 0) { /* all that can be known of a hello without the key, then the input over it */
            tti_proof_connect(&model, &other, TTI_PROOF_MESH, 0, 0);
            unsigned char hello[sizeof model.hello];
            memcpy(hello, &model.hello, sizeof hello);
            for (size_t i = 0; i < bytes && i < sizeof hello; i++) hello[i] = (unsigned char)(hello[i] ^ data[i]);
            feed(&proof, hello, sizeof hello);
        }
    }
    feed(&proof, data, bytes);
    return 0;
}
