/* SPDX-License-Identifier: Apache-2.0
 *
 * Compiled code on disk, so that a program compiles each kernel once and not in each run: in the folder TUTTI_CACHE, else
 * XDG_CACHE_HOME/tutti, else ~/.cache/tutti. A file is named by a hash of all that its contents follow from: source, options,
 * version of the compiler, GPU. It has a checksum, and is renamed into place when it is whole. So any number of processes may
 * use a folder at once, and what is damaged is compiled again and replaced.
 *
 * A folder that cannot be used costs compiling, and is told in the log once.
 */
#ifndef TTI_DEVICE_CODE_CACHE_H
#define TTI_DEVICE_CODE_CACHE_H

#include "device/nvrtc.h"
#include <stdbool.h>

enum { TTI_CODE_KEY = 33 };

/* 32 hexadecimal digits. */
void tti_code_key(const struct tti_nvrtc *nvrtc, const char *source, const char *const *options, const char *target,
                  char key[TTI_CODE_KEY]);

/* False: there is none that is whole. *code is the caller's. */
bool tti_code_read(const char *key, struct tti_code *code);
void tti_code_write(const char *key, const struct tti_code *code);

#endif
