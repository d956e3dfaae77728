# The image of the benchmarks: the functions' image and `stampede_bench`. manifests/stress.yaml runs it.
# `docker build -f functions/bench.Dockerfile .`, or `tools/image OUT.tar --image stampede-bench`.
ARG STAMPEDE=dev.local/stampede:0.1.0

# Not `stampede_local`: only `stress` is meant to run here, against an endpoint that it is given.
FROM ${STAMPEDE}
COPY functions/stampede_bench /opt/stampede/functions/stampede_bench
USER 65532:65532
ENTRYPOINT ["python3", "-m", "stampede_bench"]
