# The release factory: one image for workers, coordinator, migration and Flower.
FROM python:3.11-slim-bookworm

ENV PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_ROOT_USER_ACTION=ignore

# The folders exist in the image, so that a new named volume takes over their owner.
RUN useradd --uid 10001 --user-group --create-home fencepost \
    && install -d -o fencepost -g fencepost \
        /var/lib/fencepost /var/lib/fencepost/staging /var/lib/fencepost/published

WORKDIR /app

# Dependencies change less often than code: a layer of their own.
COPY requirements/run.txt requirements/run.txt
RUN pip install --require-hashes -r requirements/run.txt

COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN pip install --no-deps --no-build-isolation .

COPY flower.conf ./
COPY ledger ./ledger
COPY tasks ./tasks
COPY saga ./saga
COPY coordinator ./coordinator
COPY examples ./examples

ENV FACTORY_STAGING_DIR=/var/lib/fencepost/staging \
    FACTORY_PUBLISH_DIR=/var/lib/fencepost/published

USER fencepost
CMD ["celery", "-A", "coordinator.app", "worker", "--loglevel=INFO"]
