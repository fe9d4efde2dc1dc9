/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints a table of what the ranks of a job on this host do, from the board that the job's guard keeps: for tutti top,
 * and for the launcher when the job fails or it gets SIGUSR1.
 */
#ifndef TUTTI_CLI_JOB_TABLE_H
#define TUTTI_CLI_JOB_TABLE_H

#include <stdio.h>
#include <tutti/experimental.h>

/* Reads a row, with the name of this host and the system's view of the process. Returns false if there is no such rank. */
bool job_table_look(const tutti_board *board, int rank, tutti_board_row *row);
/* They print at most so many ranks; 0: all. */
void job_table_print(FILE *stream, const tutti_board *board, int most);
void job_table_print_json(FILE *stream, const tutti_board *board);
/* Prints the same as lines of the launcher, if any rank has joined. `board` may be NULL: then nothing is known. */
struct output;
void job_table_say(struct output *output, const tutti_board *board, int most);

#endif
