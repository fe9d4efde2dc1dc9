/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs of blocking calls, with a model that tells which of them deadlock, and a way to run many of them in simulated
 * worlds. Ranks that deadlock must be told at once, all of them; programs that do not deadlock must end well.
 */
#ifndef TESTS_BLOCKING_H
#define TESTS_BLOCKING_H

#include <stdbool.h>
#include <stdint.h>

enum { BLOCKING_RANKS = 6, BLOCKING_CALLS = 12, BLOCKING_LETTERS = 3, BLOCKING_ANY = -1 };

enum blocking_kind {
    BLOCKING_MESSAGE, /* a send, a receive or a group of them */
    BLOCKING_BARRIER,
    BLOCKING_BROADCAST,
    BLOCKING_ALL_REDUCE
};

/* A message that is not small waits for its receive: a large one for certain, one between them as the world has it. */
enum blocking_size { BLOCKING_SMALL, BLOCKING_BETWEEN, BLOCKING_LARGE };

struct blocking_letter {
    bool sends;
    int8_t peer; /* a receive also takes BLOCKING_ANY */
    int8_t tag;  /* likewise */
    int8_t size;
};

struct blocking_call {
    int8_t kind;
    int8_t root;
    int8_t count; /* letters; in a group, receives name their source */
    struct blocking_letter letters[BLOCKING_LETTERS];
    int16_t late_ms; /* the rank computes for so long before it */
};

struct blocking_program {
    int ranks;
    int count[BLOCKING_RANKS];
    struct blocking_call calls[BLOCKING_RANKS][BLOCKING_CALLS];
};

/* What the model finds of a program. */
enum blocking_truth { BLOCKING_WELL, BLOCKING_DEADLOCK, BLOCKING_EITHER };
enum blocking_truth blocking_truth(const struct blocking_program *program);
/* A set of ranks, by bits: those that can end all their calls in a run in which all calls of the program begin. */
unsigned blocking_enders(const struct blocking_program *program);

/* Every program of so many ranks and at most so many calls together, of which every call is reached, one of each set that
 * differs in the numbers of ranks and tags only. They go to blocking_add. */
void blocking_every(int ranks, int calls);
/* One of a few ranks and some dozens of calls; half of them would go well but for a change or two. */
void blocking_random(struct blocking_program *program, uint64_t seed);

/* Collects programs, and runs them when there are enough: over memory, over a network of one rank per host, and with an even
 * number of ranks on two hosts too. */
void blocking_add(const struct blocking_program *program);
extern bool blocking_slowly; /* and once more where things are on their way for long */
/* Runs those that are left, and prints how many there were. */
void blocking_end(const char *what);

#endif
