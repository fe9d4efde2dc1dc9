/* SPDX-License-Identifier: Apache-2.0
 *
 * What the tests of messages share: the layouts they run in, and what messages are made of.
 */
#ifndef TUTTI_TESTS_MESSAGES_H
#define TUTTI_TESTS_MESSAGES_H

#include "fault.h"

enum { MESSAGE_LAYOUTS = 6 }; /* threads or processes, shared or private memory, and the slower ways */

/* Runs `body` as `size` ranks of a layout. */
void message_run(int layout, int size, fault_body *body, const char *what);
extern bool message_shared; /* whether the layout's buffers are */

/* A buffer of this layout. */
char *message_alloc(tutti_comm *comm, size_t bytes);
void message_free(tutti_comm *comm, void *memory);

/* Byte i of message `index` from one rank to another. */
static inline char message_byte(int from, int to, int index, size_t i)
{
    return (char)(from * 31 + to * 17 + index * 7 + (int)(i % 251));
}
void message_fill(char *data, int from, int to, int index, size_t bytes);
bool message_is(const char *data, int from, int to, int index, size_t bytes);

#endif
