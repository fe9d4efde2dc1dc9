# plant: src/collective/peers/wire.c seeds=400
# A rank that has lost a peer does not tell the others, which may hear that peer, that the comm is broken.
s/^    struct tti_frame_head head = {.kind = TTI_FRAME_BREAK, .bytes = sizeof comm->area->failure};/&\n    if (comm->area->failure.status == TUTTI_ERR_PEER_LOST) return;/
