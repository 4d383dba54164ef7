# `genie` with the embedded CPU backend, on a small Debian. Build: docker build -t open-genie .
# Run: docker run --rm -it -v genie:/data open-genie chat
#      docker run --rm -p 8080:8080 -v genie:/data open-genie serve --host 0.0.0.0 --api-key KEY
FROM rust:1.95-slim-trixie AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
ARG GENIE_COMMIT
RUN cargo build --locked --release -p genie-cli -p qnn-host

FROM debian:trixie-slim
COPY --from=build /src/target/release/genie /usr/local/bin/genie
COPY --from=build /src/target/release/libqnn_host.so /usr/local/lib/libQnnHost.so
COPY --from=build /src/LICENSE-APACHE /src/LICENSE-MIT /usr/share/doc/open-genie/
# Compiled models and fetched libraries; models that can be named by one word.
ENV GENIE_CACHE=/data/cache GENIE_MODELS=/data/models
RUN mkdir -p /data/cache /data/models && chown -R 1000:1000 /data
USER 1000
WORKDIR /data
EXPOSE 8080
ENTRYPOINT ["/usr/local/bin/genie"]
CMD ["--help"]
