/* SPDX-License-Identifier: Apache-2.0
 *
 * Compiled code on disk, so that a program compiles each kernel once and not in each run: in the folder TUTTI_CACHE,
 * else XDG_CACHE_HOME/tutti, else ~/.cache/tutti. A file is named by a hash of all inputs of its contents: source,
 * options, version of the compiler, GPU. It has a checksum, and is renamed into place when it is complete. So any
 * number of processes may use a folder at once, and a damaged file is compiled again and replaced.
 *
 * If the folder cannot be used, kernels are compiled in each run, and a warning is logged once.
 */
#ifndef TTI_DEVICE_CODE_CACHE_H
#define TTI_DEVICE_CODE_CACHE_H

#include "device/nvrtc.h"
#include <stdbool.h>

enum { TTI_CODE_KEY = 33 };

/* Sets the key, 32 hexadecimal digits. */
void tti_code_key(const struct tti_nvrtc *nvrtc, const char *source, const char *const *options, const char *target,
                  char key[TTI_CODE_KEY]);

/* Returns false if there is no complete file. The caller frees *code. */
bool tti_code_read(const char *key, struct tti_code *code);
void tti_code_write(const char *key, const struct tti_code *code);

#endif
