# Not built yet, because no container engine was available. It runs requirements/install.sh, like `make` and CI.
#
#   docker build --target cpu --tag stapo:cpu .      the smoke study, tests
#   docker build --target gpu --tag stapo:gpu .      with vLLM; run with --gpus all --shm-size 32g
#   docker run --volume "$PWD/results:/home/stapo/suite/results" stapo:cpu make smoke
#
# Pin the base image by digest before you publish: docker buildx imagetools inspect python:3.11.13-slim-bookworm
FROM python:3.11.13-slim-bookworm AS cpu

# git provides the commit in every result; Triton needs a C compiler to compile kernels at run time.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends git make gcc g++ \
    && rm -rf /var/lib/apt/lists/*
RUN useradd --create-home --uid 1000 stapo
USER stapo
WORKDIR /home/stapo/suite
COPY --chown=stapo:stapo . .
RUN requirements/install.sh && rm -rf .cache/pip
ENV PATH=/home/stapo/suite/.venv/bin:$PATH HF_HUB_DISABLE_TELEMETRY=1 TOKENIZERS_PARALLELISM=false
CMD ["make", "smoke"]

FROM cpu AS gpu
RUN requirements/install_gpu.sh && rm -rf .cache/pip
CMD ["snakemake", "--help"]
