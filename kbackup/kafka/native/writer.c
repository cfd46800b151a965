/* The rows of a batch, handed to a producer. */
#include "native.h"

#include <string.h>
#include <time.h>

/* A column of variable width, and what of it may be read. */
struct texts {
    const uint8_t *valid; /* NULL: no nulls */
    const int32_t *ends;
    const char *data;
    int64_t offset, length;
    int32_t total;
};

struct text {
    const char *data; /* NULL: null */
    size_t size;
};

static struct texts texts_of(const struct ArrowArray *array) {
    struct texts texts = {.valid = array->null_count ? array->buffers[0] : NULL,
                          .ends = array->buffers[1],
                          .data = array->buffers[2],
                          .offset = array->offset,
                          .length = array->length};
    if (!texts.data)
        texts.data = ""; /* a column of nothing but nulls and empties may have no bytes */
    texts.total = texts.ends ? texts.ends[array->offset + array->length] : 0;
    return texts;
}

/* Returns 0 where the row's bytes are not within the column. */
static int read_text(const struct texts *texts, int64_t row, struct text *out) {
    int64_t at = texts->offset + row;
    int32_t start, end;
    if (row < 0 || row >= texts->length || !texts->ends)
        return 0;
    *out = (struct text){NULL, 0};
    if (texts->valid && !(texts->valid[at >> 3] >> (at & 7) & 1))
        return 1;
    start = texts->ends[at], end = texts->ends[at + 1];
    if (start < 0 || end < start || end > texts->total)
        return 0;
    *out = (struct text){texts->data + start, (size_t)(end - start)};
    return 1;
}

/* The columns that are written. */
struct source {
    const int64_t *timestamp;
    const uint8_t *timestamp_valid;
    int64_t timestamp_offset;
    struct texts key, value, header_name, header_value;
    const int32_t *headers_end;
    int64_t headers_offset, header_offset, header_length;
};

static int source_of(const struct ArrowArray *batch, struct source *out) {
    const struct ArrowArray *timestamp, *headers, *header;
    int at;
    if (batch->n_children != COLUMNS || batch->offset)
        return 0;
    for (at = 0; at < COLUMNS; at++)
        if (batch->children[at]->length < batch->length)
            return 0;
    timestamp = batch->children[TIMESTAMP];
    headers = batch->children[HEADERS];
    if (headers->n_children != 1 || (header = headers->children[0])->n_children != 2)
        return 0;
    *out = (struct source){
        .timestamp = timestamp->buffers[1],
        .timestamp_valid = timestamp->null_count ? timestamp->buffers[0] : NULL,
        .timestamp_offset = timestamp->offset,
        .key = texts_of(batch->children[KEY]),
        .value = texts_of(batch->children[VALUE]),
        .header_name = texts_of(header->children[0]),
        .header_value = texts_of(header->children[1]),
        .headers_end = headers->buffers[1],
        .headers_offset = headers->offset,
        .header_offset = header->offset,
        .header_length = header->length,
    };
    return batch->length == 0 || (out->timestamp && out->headers_end);
}

static int64_t timestamp_of(const struct source *source, int64_t row) {
    int64_t at = source->timestamp_offset + row;
    const uint8_t *valid = source->timestamp_valid;
    if (valid && !(valid[at >> 3] >> (at & 7) & 1))
        return 0; /* librdkafka's "now" */
    return source->timestamp[at];
}

/* *out stays NULL where the row has no headers; it is the caller's. */
static enum failure headers_of(const struct source *source, int64_t row, rd_kafka_headers_t **out) {
    int32_t start = source->headers_end[source->headers_offset + row];
    int32_t end = source->headers_end[source->headers_offset + row + 1];
    rd_kafka_headers_t *headers;
    *out = NULL;
    if (start < 0 || end < start || end > source->header_length)
        return BAD_BATCH;
    if (start == end)
        return FINE;
    if (!(headers = rdk.headers_new((size_t)(end - start))))
        return NO_MEMORY;
    for (; start < end; start++) {
        struct text name, value;
        if (!read_text(&source->header_name, source->header_offset + start, &name) || !name.data ||
            !read_text(&source->header_value, source->header_offset + start, &value)) {
            rdk.headers_destroy(headers);
            return BAD_BATCH;
        }
        if (rdk.header_add(headers, name.data, (ssize_t)name.size, value.data,
                           (ssize_t)value.size)) {
            rdk.headers_destroy(headers);
            return NO_MEMORY;
        }
    }
    *out = headers;
    return FINE;
}

static void set_memory(rd_kafka_vu_t *argument, struct text text) {
    argument->u.mem.ptr = (void *)text.data; /* librdkafka copies it */
    argument->u.mem.size = text.size;
}

/* Returns 0, or the client's error; takes *headers where it returns 0. */
static int produce(rd_kafka_t *rk, const rd_kafka_vu_t *arguments, size_t count) {
    rd_kafka_error_t *error = rdk.produceva(rk, arguments, count);
    int code;
    if (!error)
        return 0;
    code = rdk.error_code(error);
    rdk.error_destroy(error);
    return code;
}

/* The topic that is written to, once for a client. */
KB_API int kb_writer_open(struct client *client, const char *topic) {
    int is_open = 0;
    pthread_mutex_lock(&client->lock);
    if (client->rk && !client->topic)
        is_open = (client->topic = rdk.topic_new(client->rk, topic, NULL)) != NULL;
    pthread_mutex_unlock(&client->lock);
    return is_open;
}

KB_API void kb_writer_close(struct client *client) {
    pthread_mutex_lock(&client->lock);
    if (client->rk && client->topic)
        rdk.topic_destroy(client->topic);
    client->topic = NULL;
    pthread_mutex_unlock(&client->lock);
}

/* Hands over rows of a batch of records.SCHEMA from `row` on.  Returns the next row: that behind
 * the batch, or an earlier one where the client had no room for `patience` ms (serve its events,
 * then go on), a delivery failed (see kb_client_deliveries), the client refused the row (*error),
 * or the call failed (*failure). */
KB_API int64_t kb_writer_write(struct client *client, const struct ArrowArray *batch,
                               int32_t partition, int64_t row, int patience, int32_t *error,
                               int32_t *failure) {
    static const struct timespec PAUSE = {0, 1000000};
    struct source source;
    rd_kafka_vu_t arguments[7];
    int paused = 0;
    *error = 0;
    *failure = FINE;
    if (row < 0 || !source_of(batch, &source)) {
        *failure = BAD_BATCH;
        return row;
    }
    memset(arguments, 0, sizeof arguments);
    arguments[0].vtype = RD_KAFKA_VTYPE_RKT;
    arguments[1].vtype = RD_KAFKA_VTYPE_PARTITION;
    arguments[1].u.i32 = partition;
    arguments[2].vtype = RD_KAFKA_VTYPE_MSGFLAGS;
    arguments[2].u.i = RD_KAFKA_MSG_F_COPY;
    arguments[3].vtype = RD_KAFKA_VTYPE_TIMESTAMP;
    arguments[4].vtype = RD_KAFKA_VTYPE_KEY;
    arguments[5].vtype = RD_KAFKA_VTYPE_VALUE;
    arguments[6].vtype = RD_KAFKA_VTYPE_HEADERS;

    pthread_mutex_lock(&client->lock);
    arguments[0].u.rkt = client->topic;
    if (!client->rk || !client->topic)
        *failure = CLOSED;
    else if (!client_tally(client, partition))
        *failure = NO_MEMORY;
    while (!*failure && row < batch->length && !atomic_load(&client->failed)) {
        rd_kafka_headers_t *headers = NULL;
        struct text key, value;
        if (atomic_load(&client->leaving)) {
            *failure = CLOSED;
            break;
        }
        if (!read_text(&source.key, row, &key) || !read_text(&source.value, row, &value)) {
            *failure = BAD_BATCH;
            break;
        }
        if ((*failure = headers_of(&source, row, &headers)) != FINE)
            break;
        arguments[3].u.i64 = timestamp_of(&source, row);
        set_memory(&arguments[4], key);
        set_memory(&arguments[5], value);
        arguments[6].u.headers = headers;
        if (!(*error = produce(client->rk, arguments, headers ? 7 : 6))) {
            row++;
            continue;
        }
        if (headers)
            rdk.headers_destroy(headers);
        if (*error != RD_KAFKA_RESP_ERR__QUEUE_FULL)
            break;
        *error = 0;
        if (paused++ >= patience)
            break;
        nanosleep(&PAUSE, NULL);
    }
    pthread_mutex_unlock(&client->lock);
    return row;
}
