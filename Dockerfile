# kbackup with Java 25, the Schema Registry's client and Amazon MSK's, for a user that is not root.
#
#   docker build -t kbackup .
#   docker run --rm -v "$PWD/s3.properties:/etc/kbackup/s3.properties:ro" kbackup sink --config /etc/kbackup/s3.properties
#
# The root file system may be read-only; /tmp has to be writable, with room for two files of each task.

FROM python:3.12-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev git
COPY . /src
RUN python3 -m pip wheel --no-cache-dir --no-deps -w /wheels /src

FROM python:3.12-slim
ENV KBACKUP_CACHE_DIR=/opt/kbackup/cache KBACKUP_LOCK_DIR=/tmp HOME=/tmp PYTHONDONTWRITEBYTECODE=1
COPY --from=build /wheels /wheels
RUN python3 -m venv /opt/kbackup
RUN /opt/kbackup/bin/python -m pip install --no-cache-dir "$(echo /wheels/*.whl)[java,msk,registry]"
# the class archive with which Spark starts two seconds faster
RUN /opt/kbackup/bin/python -c "from kbackup.inspect.host import keep_classes; from kbackup.local.java import find_java; keep_classes(find_java())"
USER 10001:10001
WORKDIR /tmp
ENTRYPOINT ["/opt/kbackup/bin/kbackup"]
CMD ["--help"]
