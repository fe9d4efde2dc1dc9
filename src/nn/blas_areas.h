/* SPDX-License-Identifier: Apache-2.0
 *
 * Work areas of OpenBLAS. It maps one for each thread that multiplies at a time, and keeps it. If the system refuses to
 * map one, OpenBLAS asks again, for ever: so these functions check that there is room before it is called.
 */
#ifndef TTI_NN_BLAS_AREAS_H
#define TTI_NN_BLAS_AREAS_H

#include <tutti/train.h>

/* Returns ERR_LIMIT unless the library can be mapped, with an area for each thread that it starts while it is
 * loaded. */
tutti_status tti_areas_room_to_load(tutti_error *error);
/* Finds the functions that take and give back areas, if the library exports them. */
void tti_areas_find(void *library);
/* Makes OpenBLAS map areas for `threads` threads that multiply at the same time; if these are more than `most`, they
 * take turns. */
tutti_status tti_areas_reserve(int threads, int most, tutti_error *error);

#endif
