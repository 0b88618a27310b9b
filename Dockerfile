# One image for ebb-controller, ebb-webhook, ebb-extender and ebb; nothing in it depends on the processor:
#   docker buildx build --platform linux/amd64,linux/arm64 --tag ghcr.io/kube-ebb/ebb:0.1.0 .
# A release names the base image by its digest, and RELEASE=yes refuses a tag: docs/releasing.md.
ARG BASE=python:3.12-slim
ARG RELEASE=no
FROM ${BASE} AS build
ARG BASE
ARG RELEASE
RUN case "${RELEASE} ${BASE}" in "no "*|*@sha256:*) ;; *) echo "BASE=${BASE} has no digest" >&2; exit 1;; esac
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
# All that is fetched is pinned by hash: what builds the package here, what it runs on in a venv
# that is copied as it is. Bytecode is compiled now, because later the file system is read-only.
COPY requirements-build.lock requirements-runtime.lock ./
RUN pip install --require-hashes --no-deps --only-binary :all: -r requirements-build.lock \
 && python -m venv --without-pip /opt/ebb \
 && pip --python /opt/ebb/bin/python install --require-hashes --no-deps --only-binary :all: \
      -r requirements-runtime.lock
COPY . .
RUN pip wheel --no-deps --no-build-isolation --wheel-dir dist . \
 && pip --python /opt/ebb/bin/python install --no-index --no-deps dist/*.whl

FROM ${BASE}
COPY --from=build /opt/ebb /opt/ebb
# HOME, because the Kubernetes client looks for it and the user has no entry of its own.
ENV HOME=/tmp PATH=/opt/ebb/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 65532:65532
CMD ["ebb", "--help"]
