/* SPDX-License-Identifier: Apache-2.0
 *
 * How long a cache line takes from one core to another. A virtual machine's cores may be moved about by its host, within
 * seconds, and what they share is different then: figures are to be read with it.
 */
#ifndef PEERS_CROSSING_HPP
#define PEERS_CROSSING_HPP

namespace peers
{

/* Microseconds, between the first two cores that this process may use; 0 where there is only one. */
double crossing_us();

} // namespace peers
#endif
