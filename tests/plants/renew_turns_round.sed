# plant: src/collective/api/renew.c seeds=400
# A renewed comm has its ranks in the opposite order.
s/call.key = told_by(renewal, first)->places\[world->rank\];/call.key = -world->rank;/
