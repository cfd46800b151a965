/* One partition's queue, drained into batches.
 *
 * librdkafka keeps a queue of what it has fetched for each partition, and forwards it to the
 * consumer's.  That is switched off for the partition at hand, and its queue is read with
 * rd_kafka_queue_poll: one event after the other, a record, the end of the partition, or an error.
 * The functions that take many records at a time serve other events by themselves, and end the
 * process at one that they do not expect, such as an unknown topic.
 *
 * Forwarding to a queue of our own would not do: the end of an assignment switches forwarding off
 * a little later, in another thread, and may hit the next assignment. */
#include "native.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* How long one wait for records lasts, ms: a client that is being closed waits no longer. */
static const int SLICE = 20;

struct reader {
    struct client *client;
    int64_t position, end; /* the next offset to be read, the first one that is not wanted */
    int64_t max_rows, max_bytes;
    rd_kafka_queue_t *queue; /* NULL once it was shut */
    rd_kafka_event_t *held;  /* a record that its batch had no room for */
    const rd_kafka_message_t *held_message;
    struct columns *columns;
    struct columns_size hint;
};

/* What a call of kb_reader_drain() came to; library.py has the same struct. */
struct drained {
    int64_t rows;     /* in the batch; 0: there is none */
    int64_t position; /* the next offset to be read */
    int64_t event_offset; /* of the event or the failure, where it has one */
    int32_t event;        /* an error of Kafka's, or the end of the partition; 0: none */
    int32_t failure;      /* of `enum failure`; the batch holds what was read before */
    char text[512];  /* the event's */
};

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void reader_shut(struct reader *reader) {
    rd_kafka_event_t *event;
    if (!reader->queue)
        return;
    if (reader->held)
        rdk.event_destroy(reader->held);
    reader->held = NULL;
    /* What was fetched too far would stay in memory until the partition is read again. */
    while ((event = rdk.queue_poll(reader->queue, 0)))
        rdk.event_destroy(event);
    rdk.queue_destroy(reader->queue);
    reader->queue = NULL;
    reader->client->reader = NULL;
}

/* Before the partition is assigned to the consumer; ends what was read before.  NULL: out of
 * memory, or the client is closed. */
KB_API struct reader *kb_reader_new(struct client *client, const char *topic, int32_t partition,
                                    int64_t start, int64_t end, int64_t max_rows,
                                    int64_t max_bytes) {
    struct reader *reader = NULL;
    if (max_rows < 1 || max_rows > 1 << 24)
        return NULL;
    pthread_mutex_lock(&client->lock);
    if (!client->rk || !(reader = calloc(1, sizeof *reader)))
        goto failed;
    if (client->reader)
        reader_shut(client->reader); /* a signal came before its owner could free it */
    reader->client = client;
    reader->position = start;
    reader->end = end;
    reader->max_rows = max_rows;
    reader->max_bytes = max_bytes;
    if (!(reader->queue = rdk.queue_get_partition(client->rk, topic, partition)))
        goto failed;
    rdk.queue_forward(reader->queue, NULL);
    atomic_fetch_add(&client->owners, 1);
    client->reader = reader;
    pthread_mutex_unlock(&client->lock);
    return reader;
failed:
    free(reader);
    pthread_mutex_unlock(&client->lock);
    return NULL;
}

/* No other thread may use the reader any more. */
KB_API void kb_reader_free(struct reader *reader) {
    struct client *client = reader->client;
    pthread_mutex_lock(&client->lock);
    reader_shut(reader);
    pthread_mutex_unlock(&client->lock);
    columns_free(reader->columns);
    free(reader);
    client_release(client);
}

static void note_error(struct drained *out, int error, int64_t offset, const char *text) {
    out->event = error;
    out->event_offset = offset;
    snprintf(out->text, sizeof out->text, "%s", text ? text : "");
}

static void note_event(struct drained *out, rd_kafka_event_t *event) {
    rd_kafka_topic_partition_t *place = rdk.event_topic_partition(event);
    int error = rdk.event_error(event);
    if (error)
        note_error(out, error, place ? place->offset : -1, rdk.event_error_string(event));
    if (place)
        rdk.topic_partition_destroy(place);
}

/* Returns 0 where the message must be held: for the next batch, or because of out->failure. */
static int take(struct reader *reader, const rd_kafka_message_t *message, struct drained *out) {
    if (message->err) {
        note_error(out, message->err, message->offset, NULL);
        return 1;
    }
    if (message->offset >= reader->end) {
        reader->position = reader->end;
        return 1;
    }
    if (message->offset < reader->position)
        return 1; /* fetched before the assignment at hand */
    if (!reader->columns) {
        reader->columns = columns_new(reader->max_rows, reader->hint);
        if (!reader->columns) {
            out->failure = NO_MEMORY;
            return 0;
        }
    }
    switch (columns_append(reader->columns, message)) {
    case APPENDED:
        reader->position = message->offset + 1;
        return 1;
    case NO_ROOM:
        if (!columns_rows(reader->columns)) /* not even alone: 2 GiB and more */
            out->failure = NO_MEMORY;
        return 0;
    case OUT_OF_MEMORY:
        out->failure = NO_MEMORY;
        return 0;
    case NAME_NOT_UTF8:
        out->failure = BAD_HEADER_NAME;
        out->event_offset = message->offset;
        return 0;
    }
    return 0;
}

static int is_full(const struct reader *reader) {
    return reader->columns && (columns_rows(reader->columns) >= reader->max_rows ||
                               columns_bytes(reader->columns) >= reader->max_bytes);
}

static rd_kafka_event_t *next_event(struct reader *reader, int64_t deadline) {
    rd_kafka_event_t *event = rdk.queue_poll(reader->queue, 0);
    while (!event && !atomic_load(&reader->client->leaving)) {
        int64_t left = deadline - now_ms();
        if (left <= 0)
            break;
        event = rdk.queue_poll(reader->queue, left < SLICE ? (int)left : SLICE);
    }
    return event;
}

/* Reads until a batch is full, the end is reached, `timeout` ms are over, or something else than a
 * record comes.  *batch is set where out->rows is not 0. */
KB_API void kb_reader_drain(struct reader *reader, int timeout, struct drained *out,
                            struct ArrowArray *batch) {
    int64_t deadline = now_ms() + timeout;
    *out = (struct drained){.event_offset = -1};
    batch->release = NULL;
    pthread_mutex_lock(&reader->client->lock);
    while (reader->position < reader->end && !is_full(reader) && !out->event && !out->failure) {
        rd_kafka_event_t *event = reader->held;
        const rd_kafka_message_t *message = reader->held_message;
        if (!reader->queue) {
            out->failure = CLOSED;
            break;
        }
        reader->held = NULL;
        if (!event) {
            if (!(event = next_event(reader, deadline))) {
                if (atomic_load(&reader->client->leaving))
                    out->failure = CLOSED;
                break;
            }
            message = NULL;
            switch (rdk.event_type(event)) {
            case RD_KAFKA_EVENT_FETCH:
                message = rdk.event_message_next(event);
                break;
            case RD_KAFKA_EVENT_ERROR:
                note_event(out, event);
                break;
            default:
                break; /* nothing else was asked for */
            }
        }
        if (message && !take(reader, message, out)) {
            reader->held = event;
            reader->held_message = message;
            break;
        }
        rdk.event_destroy(event);
    }
    out->position = reader->position;
    if (reader->columns && columns_rows(reader->columns)) {
        out->rows = columns_rows(reader->columns);
        reader->hint = columns_size(reader->columns);
        columns_export(reader->columns, batch);
        reader->columns = NULL;
    }
    pthread_mutex_unlock(&reader->client->lock);
}
