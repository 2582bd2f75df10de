# The scheduler for Kubernetes: `docker build -t registry.example/phalanx:1 .`, then `phalanx kube install --image
# registry.example/phalanx:1 | kubectl apply -f -`. Nothing is compiled, and nothing is fetched that is not locked by its hash.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS build
WORKDIR /src
# Before the sources: this layer changes only with the locked set.
COPY requirements/light.txt requirements/
RUN python -m venv /opt/phalanx \
 && /opt/phalanx/bin/pip install --no-cache-dir --only-binary :all: --require-hashes -r requirements/light.txt
COPY pyproject.toml LICENSE ./
COPY src src
# What only builds does not travel: neither pip nor the backend.
RUN /opt/phalanx/bin/pip install --no-cache-dir --no-deps --no-build-isolation . \
 && /opt/phalanx/bin/pip uninstall --yes --quiet hatchling packaging pathspec pluggy tomlkit trove-classifiers \
    setuptools pip

FROM ${BASE}
COPY --from=build /opt/phalanx /opt/phalanx
ENV PATH=/opt/phalanx/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
# The same number as in the manifests, which insist on somebody who is not root.
USER 65532:65532
ENTRYPOINT ["phalanx"]
CMD ["kube", "run"]
