/* SPDX-License-Identifier: Apache-2.0
 *
 * The job's key: 32 secret bytes that only the ranks of a job have. It comes from a file that only its owner can read
 * (option key_file), or from the launcher in the environment (TUTTI_KEY, 64 hexadecimal digits); never from a command
 * line, which every user of a host can read.
 */
#ifndef TTI_BASE_KEY_H
#define TTI_BASE_KEY_H

#include <stdbool.h>
#include <tutti/tutti.h>

enum { TTI_KEY_BYTES = 32, TTI_KEY_TEXT = 2 * TTI_KEY_BYTES + 1 };

struct tti_key {
    unsigned char bytes[TTI_KEY_BYTES];
};

/* Makes libsodium ready; may be called repeatedly. The functions below call it themselves. */
tutti_status tti_key_setup(tutti_error *error);
/* Finds the file's key, or else the environment's. If there is neither, returns OK and *found is false. */
tutti_status tti_key_find(const tutti_options *options, struct tti_key *key, bool *found, tutti_error *error);
tutti_status tti_key_random(struct tti_key *key, tutti_error *error);
void tti_key_forget(struct tti_key *key); /* overwrites the key */

#endif
