# The commands of AgentFly Pipelines on CPUs, with the packages that were tested together.
FROM python:3.11-slim

# g++ compiles DeepSpeed's CPU operators when a learner starts; git names the revision of a run
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ git \
    && rm -rf /var/lib/apt/lists/*

# an index with CPU builds of PyTorch keeps CUDA out of the image
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore

# packages before sources: a changed source reuses their layers
COPY requirements/cpu.txt /src/requirements/cpu.txt
RUN pip install "setuptools>=77" "$(grep '^torch==' /src/requirements/cpu.txt)" \
    && pip install --no-deps -r /src/requirements/cpu.txt
COPY pyproject.toml README.md LICENSE /src/
COPY requirements /src/requirements
COPY agentfly_core /src/agentfly_core
COPY flows /src/flows
COPY tasks /src/tasks
RUN pip install --no-deps --no-build-isolation /src && rm -r /src

RUN useradd --create-home --uid 1000 agentfly && install -d -o agentfly /work
USER agentfly
WORKDIR /work
ENTRYPOINT ["agentfly"]
CMD ["--help"]
