/* SPDX-License-Identifier: Apache-2.0
 *
 * Which kernels OpenBLAS multiplies with. It chooses them when it is loaded, by the CPU's model number: on a CPU that is
 * newer than itself it takes its oldest, which are up to ten times slower. Then it is loaded again, and told by
 * OPENBLAS_CORETYPE which ones the CPU's features allow.
 */
#ifndef TTI_NN_BLAS_CORE_H
#define TTI_NN_BLAS_CORE_H

#include <tutti/train.h>

/* Loads the library; NULL: it cannot be. */
typedef void *tti_core_open(void);

/* Looks at the kernels of a library that was just loaded and of which nothing is used yet, and finds better ones where
 * they are old. Returns the library, perhaps under another handle, or NULL where it could not be loaded again. A failure
 * to find better ones is logged as a warning. `reopen` NULL: the library cannot be unloaded. Called once per process. */
void *tti_core_fit(void *library, tti_core_open *reopen);

#endif
