/* SPDX-License-Identifier: Apache-2.0
 *
 * What the tests of messages share: the layouts they run in, and what messages are made of.
 */
#ifndef TUTTI_TESTS_MESSAGES_H
#define TUTTI_TESTS_MESSAGES_H

#include "fault.h"

/* Threads or processes, shared or private memory, and the slower ways; the last one goes over a transport of frames, which
 * its ranks leave together. */
enum { MESSAGE_FRAMES = 6, MESSAGE_LAYOUTS = MESSAGE_FRAMES + 1 };

/* Runs `body` as `size` ranks of a layout. */
void message_run(int layout, int size, fault_body *body, const char *what);
extern bool message_shared; /* whether the layout's buffers are */

/* The comm's messages go over frames from open to close (messages_wire.c). Every rank calls both. */
void message_wire_open(tutti_comm *comm);
void message_wire_close(tutti_comm *comm);

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
