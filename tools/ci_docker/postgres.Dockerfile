# Stands in for postgres:16 where no image can be pulled: Debian's PostgreSQL.
FROM python:3.11-slim-bookworm
RUN mkdir -p /etc/postgresql-common \
    && echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.conf \
    && apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends postgresql \
    && ln -s /usr/lib/postgresql/*/bin/* /usr/local/bin/ \
    && install -d -o postgres -g postgres -m 700 /var/lib/postgresql/data \
    && install -d -o postgres -g postgres /var/run/postgresql
COPY postgres.sh /usr/local/bin/
USER postgres
VOLUME /var/lib/postgresql/data
ENTRYPOINT ["sh", "/usr/local/bin/postgres.sh"]
