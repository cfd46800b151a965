#!/usr/bin/env bash
# Restore a backup to another cluster or under other names: look, verify, plan, restore.
#
#   KBACKUP_S3_BUCKET_NAME=backups KBACKUP_BOOTSTRAP_SERVERS=dr-kafka:9092 \
#       ./restore-elsewhere.sh 'copy_of_$0' orders,payments
#
# Other settings (another S3 server, credentials, the cluster's security) come from the environment
# or from the file that KBACKUP_CONFIG names.
set -euo pipefail

rename=${1:?new name of each topic, such as 'copy_of_\$0'}
topics=${2:?topics, separated by commas}

kbackup restore list --topics "$topics"
kbackup restore verify --topics "$topics"

# the plan exits as the restore would: 4 if something forbids it
kbackup restore --dry-run --topics "$topics" --rename "$rename"

# if it fails, run it again: it continues where it stopped; its last lines are the commands that
# remain, such as those that compare the records and give the topics their retention back
kbackup restore run --topics "$topics" --rename "$rename"
