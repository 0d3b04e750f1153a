# Stands in for redis:7 where no image can be pulled: Debian's Redis.
FROM python:3.11-slim-bookworm
RUN apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends redis-server \
    && install -d -o redis -g redis /data
USER redis
WORKDIR /data
VOLUME /data
CMD ["redis-server", "--protected-mode", "no"]
