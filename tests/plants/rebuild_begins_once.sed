# plant: src/collective/api/api_join.c jobs=200
# A process whose join fails, since another one died meanwhile, does not begin anew.
s/^        again = restarts && /        again = false \&\& restarts \&\& /
