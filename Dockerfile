# raftlog with its command line and the fault injection; see docker-compose.chaos.yml.
FROM python:3.11-slim
RUN apt-get update && apt-get install --yes --no-install-recommends iproute2 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN pip install --no-cache-dir '.[server,chaos]'
ENTRYPOINT ["raftlog"]
