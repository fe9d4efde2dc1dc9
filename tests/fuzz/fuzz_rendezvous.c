/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz: runs=20000 */
/* The messages of the rendezvous, and the peer infos of endpoints: any bytes on the connection are taken or refused, memory is
 * bounded by what is said first, and blobs that are taken lie within what came. */
#include "base/alloc.h"
#include "transport/tcp.h"
#include "world/meeting.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static unsigned touch(const struct tti_blobs *all)
{
    unsigned sum = 0;
    for (int i = 0; i < all->count; i++) {
        size_t bytes;
        const unsigned char *blob = tti_blob(all, i, &bytes);
        for (size_t at = 0; at < bytes; at++) sum += blob[at];
    }
    return sum;
}

static void take(struct tti_meeting_message *message, int size)
{
    struct tti_blobs all;
    tutti_error error;
    if (message->head.kind == TTI_MEETING_TROUBLE) {
        tti_meeting_take_trouble(message, &error);
        if (memchr(error.text, '\0', sizeof error.text) == NULL) abort();
    } else if (message->head.kind == TTI_MEETING_ALL &&
               tti_blobs_take(&all, message->body, (size_t)message->head.bytes, size)) {
        static volatile unsigned long seen; /* so that the bytes are read */
        seen = (unsigned long)touch(&all);
        (void)seen;
        message->body = NULL;
        tti_blobs_free(&all);
    }
}

static void parse(const uint8_t *data, size_t bytes, bool from_root, int size, bool help)
{
    int fds[2];
    struct tti_meeting_message message = {.body = NULL};
    struct tti_meeting_head head = {
        .magic = TTI_MEETING_MAGIC, .kind = from_root ? TTI_MEETING_ALL : TTI_MEETING_GIVE, .round = 1, .bytes = bytes};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) != 0) abort();
    if (help) (void)!write(fds[1], &head, sizeof head);
    (void)!write(fds[1], data, bytes);
    close(fds[1]);
    if (tti_meeting_message_receive(&message, fds[0], from_root, size) == TTI_MEETING_WHOLE) take(&message, size);
    tti_meeting_message_drop(&message);
    close(fds[0]);
}

static void read_peer_info(const uint8_t *data, size_t bytes)
{
    static struct tti_tcp *tcp;
    tutti_error error;
    struct tti_tcp_settings settings = {.job = "fuzz", .size = 2, .interface = "lo", .streams = 1};
    if (tcp == NULL && tti_tcp_listen(&settings, &tcp, &error) != TUTTI_OK) abort();
    if (tti_tcp_expect(tcp, 1, data, bytes, &error) != TUTTI_OK) return;
    tti_tcp_transport(tcp)->ops->close(tti_tcp_transport(tcp), 0); /* it expects somebody now */
    tcp = NULL;
}

/* What came again and again, up to the length that it says, which may be more than that of any peer info. */
static void read_long_card(const uint8_t *data, size_t bytes)
{
    uint8_t peer_info[2 * sizeof(struct tti_tcp_peer_info)];
    size_t length = bytes < 2 ? 0 : (data[0] | (size_t)data[1] << 8) % sizeof peer_info;
    for (size_t i = 0; i < length; i++) peer_info[i] = data[i % bytes];
    read_peer_info(peer_info, length);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes < 2 || bytes > 60000) return 0;
    int size = 1 + (data[0] >> 4);
    bool root = (data[0] & 1) != 0, help = (data[0] & 2) != 0;
    if ((data[0] & 12) == 12)
        read_long_card(data + 1, bytes - 1);
    else if ((data[0] & 4) != 0)
        read_peer_info(data + 1, bytes - 1);
    else
        parse(data + 1, bytes - 1, root, size, help);
    return 0;
}
