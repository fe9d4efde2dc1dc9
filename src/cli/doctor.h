/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of `tutti doctor`. Each part checks one subject and adds a line for everything it finds.
 */
#ifndef TUTTI_CLI_DOCTOR_H
#define TUTTI_CLI_DOCTOR_H

enum finding {
    FOUND_GOOD,
    FOUND_NOTE,    /* worth knowing; nothing is wrong */
    FOUND_WARNING, /* works, but slower or not everywhere */
    FOUND_BAD      /* prevents ranks from joining */
};

struct doctor;

/* Adds a line. `fix`: what to do about it, or NULL. */
__attribute__((format(printf, 5, 6))) void doctor_add(struct doctor *doctor, enum finding finding, const char *name,
                                                      const char *fix, const char *format, ...);

/* The machine. */
void doctor_version(struct doctor *doctor);
void doctor_cores(struct doctor *doctor);
void doctor_memory(struct doctor *doctor);
void doctor_limits(struct doctor *doctor);
void doctor_kernel(struct doctor *doctor);
void doctor_interfaces(struct doctor *doctor);
/* The job. */
void doctor_options(struct doctor *doctor);
void doctor_launcher(struct doctor *doctor);
void doctor_key(struct doctor *doctor);
void doctor_trial(struct doctor *doctor);
/* Libraries that are loaded at run time, when they are needed. */
void doctor_libraries(struct doctor *doctor);
/* GPUs, and their libraries. */
void doctor_devices(struct doctor *doctor);

#endif
