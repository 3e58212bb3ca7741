# Images of raftlog. The default one runs brokers and the command line: docker-compose.yml, deploy/kubernetes.yaml.
# The target `chaos` has what the faults of docker-compose.chaos.yml need as well.
ARG PYTHON=python:3.11.13-slim-bookworm

FROM ${PYTHON} AS wheel
WORKDIR /src
COPY . .
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /dist .

FROM ${PYTHON} AS broker
LABEL org.opencontainers.image.title="raftlog" \
      org.opencontainers.image.description="A distributed log: topics, partitions, and one Raft group per partition." \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=wheel /dist /dist
RUN pip install --no-cache-dir "$(echo /dist/raftlog-*.whl)[server]"
RUN useradd --system --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin raftlog \
    && install -d -o raftlog -g raftlog -m 700 /var/lib/raftlog
USER 10001:10001
WORKDIR /var/lib/raftlog
VOLUME /var/lib/raftlog
EXPOSE 7070 7170
STOPSIGNAL SIGTERM
ENV READY_URL=http://127.0.0.1:7070/healthz/ready
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen(os.environ['READY_URL'], timeout=4)"]
ENTRYPOINT ["raftlog"]
CMD ["serve", "--config", "/var/lib/raftlog/raftlog.toml"]

FROM broker AS chaos
USER root
RUN apt-get update && apt-get install --yes --no-install-recommends iproute2 && rm -rf /var/lib/apt/lists/*
RUN pip install --no-cache-dir "$(echo /dist/raftlog-*.whl)[server,chaos]"

FROM broker
