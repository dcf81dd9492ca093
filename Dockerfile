# syntax=docker/dockerfile:1

# Alpine's own toolchain targets musl, so the binary is static without cross-compiling. The image has the C compiler
# that ring needs.
FROM rust:1.95-alpine AS build
ARG REVISION=unknown
ENV EVENKEEL_REVISION=$REVISION
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --locked --profile dist --no-default-features --bin evenkeel && \
    cp target/dist/evenkeel /evenkeel

# Nothing but the program. The kube-apiserver's CA comes with the pod's service account, so no certificates are needed.
FROM scratch
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="evenkeel" \
      org.opencontainers.image.description="A Kubernetes operator that makes version skew visible and upgrades boring" \
      org.opencontainers.image.source="https://github.com/evenkeel/evenkeel" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version=$VERSION \
      org.opencontainers.image.revision=$REVISION
COPY --from=build /evenkeel /evenkeel
# A number: the Deployment says `runAsNonRoot` and names no user, and the kubelet cannot tell whether a name is root.
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["/evenkeel"]
