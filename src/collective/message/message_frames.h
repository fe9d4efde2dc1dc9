/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages between ranks that share no memory: notes as frames of a transport. Data of large messages go from the sender's
 * buffer to the receiver's without a copy of ours.
 *
 * A comm with frames uses them for all peers but itself. Whoever owns the transport's endpoint gives its sink's calls for
 * frames of this comm and these kinds to the functions below.
 */
#ifndef TTI_COLLECTIVE_MESSAGE_FRAMES_H
#define TTI_COLLECTIVE_MESSAGE_FRAMES_H

#include "collective/peers/net.h"

extern const struct tti_letter_sink tti_letter_sink;

#endif
