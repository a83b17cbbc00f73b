#!/bin/sh
# Builds milestones/kafka:local from Debian and Maven jars, for machines that can't pull images. As root:
#   sh compat_tests/harness/build_image.sh JARS     JARS: a folder with Kafka's jars
# `python -c 'from milestones.common.kafka.embedded import kafka_jars; print(kafka_jars())'` prints such a folder.
set -eu
jars=${1:?usage: build_image.sh FOLDER_WITH_KAFKA_JARS}
image=${MILESTONES_KAFKA_IMAGE:-milestones/kafka:local}
ls "$jars"/kafka_2.13-*.jar >/dev/null
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
debootstrap --variant=minbase --include=openjdk-17-jre-headless,ca-certificates bookworm "$root"
mkdir -p "$root/opt/kafka/libs"
cp "$jars"/*.jar "$root/opt/kafka/libs/"
tar -C "$root" -c . | docker import - "$image"
