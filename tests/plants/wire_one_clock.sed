# plant: src/collective/peers/wire_agree.c seeds=400
# An agreement takes the time at which it began from the clock of another host.
/^tutti_status tti_wire_agree(/,/^}/s/^    tti_net_lock(comm->lanes->net);/    if (others_ns != 0) agreeing.began_ns = others_ns;\n    others_ns = tti_now_ns();\n&/
s/^tutti_status tti_wire_agree(/static int64_t others_ns;\n&/
