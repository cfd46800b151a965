/* Kafka records to and from Arrow columns, without a Python object for each: what the four source
 * files share.  Called through ctypes, by library.py; no Python.h.
 *
 *   client.c   becomes a plugin of librdkafka, and learns of each client that is made
 *   reader.c   drains one partition's queue
 *   columns.c  grows the columns of one batch and hands them over (Arrow C data interface)
 *   writer.c   hands the rows of a batch to a producer
 */
#ifndef KBACKUP_NATIVE_H
#define KBACKUP_NATIVE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "rdkafka.h"

#define KB_API __attribute__((visibility("default")))

/* https://arrow.apache.org/docs/format/CDataInterface.html */
struct ArrowArray {
    int64_t length;
    int64_t null_count;
    int64_t offset;
    int64_t n_buffers;
    int64_t n_children;
    const void **buffers;
    struct ArrowArray **children;
    struct ArrowArray *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};

/* The columns of records.SCHEMA, in its order. */
enum { OFFSET, TIMESTAMP, TIMESTAMP_TYPE, KEY, VALUE, HEADERS, COLUMNS };

/* Why a call could not do its work, where Kafka is not to blame; library.py has the same list. */
enum failure { FINE, NO_MEMORY, CLOSED, BAD_HEADER_NAME, BAD_BATCH };

/* -- client.c ---------------------------------------------------------------------------------- */

struct reader;

/* Where the records stand that a partition has acknowledged since it was asked last. */
struct tally {
    atomic_llong records;
    atomic_llong first, last; /* their offsets */
    atomic_llong unknown;     /* records whose answer did not say: the broker knew them already */
};

enum { TALLIES = 64, PARTITIONS_MOST = 102400 };

/* One client of confluent-kafka's.  It is ours as well as librdkafka's, and goes when both let go
 * of it.
 *
 * `lock` is held by whoever uses `rk` or what was made from it; on_destroy() takes it before `rk`
 * becomes invalid.  So a client may be closed while another thread reads from it or writes to it:
 * the thread is waited for, then finds `rk` to be NULL. */
struct client {
    atomic_int owners;
    atomic_int leaving; /* asks a thread that holds the lock to give it up soon */
    pthread_mutex_t lock;
    rd_kafka_t *rk;          /* NULL once the client is gone */
    struct reader *reader;   /* the one that is open, if any */
    rd_kafka_topic_t *topic; /* what is being written to, if any */
    /* Deliveries, in the order in which librdkafka reports them: that of production, for there is
     * one partition. */
    atomic_llong delivered;    /* reports, failures included */
    atomic_llong failed;       /* reports that are failures */
    atomic_llong first_failed; /* number of the first failure's record, from 0 */
    atomic_int error;          /* its error */
    _Atomic(struct tally *) tallies[PARTITIONS_MOST / TALLIES]; /* made once, never moved */
};

void client_release(struct client *client);
/* Makes room for what is acknowledged in a partition; the lock is held.  Returns 0 without memory. */
int client_tally(struct client *client, int32_t partition);

/* -- columns.c --------------------------------------------------------------------------------- */

struct columns;

struct columns_size { /* bytes in the buffers that grow; a hint for the batch that follows */
    size_t key, value, header_name, header_value;
    int64_t headers;
};

enum appended { APPENDED, NO_ROOM, OUT_OF_MEMORY, NAME_NOT_UTF8 };

struct columns *columns_new(int64_t max_rows, struct columns_size hint);
void columns_free(struct columns *columns);
/* Adds a record, or nothing at all.  NO_ROOM: a column would outgrow its 32-bit offsets, or
 * max_rows is reached. */
enum appended columns_append(struct columns *columns, const rd_kafka_message_t *message);
int64_t columns_rows(const struct columns *columns);
int64_t columns_bytes(const struct columns *columns); /* of keys, values and headers */
struct columns_size columns_size(const struct columns *columns);
/* Moves the columns into *out, whose release() frees them. */
void columns_export(struct columns *columns, struct ArrowArray *out);

/* -- reader.c ---------------------------------------------------------------------------------- */

/* Lets go of what the reader holds of its client; the client's lock is held. */
void reader_shut(struct reader *reader);

#endif
