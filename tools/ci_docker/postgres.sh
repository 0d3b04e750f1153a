#!/bin/sh
# What the tests need of the official image's entrypoint: the POSTGRES_* variables, data in PGDATA.
set -eu
bin=$(echo /usr/lib/postgresql/*/bin)
data=${PGDATA:-/var/lib/postgresql/data}
user=${POSTGRES_USER:-postgres}
if [ ! -s "$data/PG_VERSION" ]; then
  printf '%s' "$POSTGRES_PASSWORD" >/tmp/password
  "$bin/initdb" --pgdata="$data" --username="$user" --pwfile=/tmp/password --encoding=UTF8 \
    --locale=C.UTF-8 --auth-local=trust --auth-host=scram-sha-256 >/dev/null
  rm /tmp/password
  echo "host all all all scram-sha-256" >>"$data/pg_hba.conf"
  # On the socket only, as in the official image: nobody gets in before the database is there.
  "$bin/pg_ctl" --pgdata="$data" --wait --options="-c listen_addresses=''" start >/dev/null
  "$bin/psql" --username="$user" --dbname=postgres --quiet \
    --command="CREATE DATABASE \"${POSTGRES_DB:-$user}\"" || [ "${POSTGRES_DB:-$user}" = postgres ]
  "$bin/pg_ctl" --pgdata="$data" --wait --mode=fast stop >/dev/null
fi
exec "$bin/postgres" -D "$data" -c listen_addresses='*' "$@"
