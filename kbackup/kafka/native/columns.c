/* The columns of one batch while they grow, and their way out by the Arrow C data interface. */
#include "native.h"

#include <stdlib.h>
#include <string.h>

enum { ROOT = COLUMNS, HEADER, HEADER_NAME, HEADER_VALUE, ARRAYS };

struct buffer {
    uint8_t *data;
    size_t size, capacity;
};

struct columns {
    struct ArrowArray arrays[ARRAYS];
    const void *buffers[ARRAYS][3];
    struct ArrowArray *children[COLUMNS], *element[1], *header[2];
    atomic_int shares; /* arrays that were handed over and not released yet */

    int64_t rows, max_rows, bytes;
    int64_t null_keys, null_values;
    /* One allocation for what has max_rows places. */
    uint8_t *fixed;
    int64_t *offset, *timestamp;
    int32_t *key_end, *value_end, *headers_end; /* max_rows + 1; [0] is 0 */
    int8_t *timestamp_type;
    uint8_t *key_valid, *value_valid;
    struct buffer key, value;

    int64_t headers, null_header_values;
    struct buffer header_name, header_value;         /* bytes */
    struct buffer header_name_end, header_value_end; /* int32, one more than there are headers */
    struct buffer header_value_valid;
};

static int reserve(struct buffer *buffer, size_t more) {
    size_t needed = buffer->size + more, capacity = buffer->capacity ? buffer->capacity : 256;
    uint8_t *data;
    if (needed <= buffer->capacity)
        return 0;
    while (capacity < needed)
        capacity *= 2; /* `needed` is below 2**33: it cannot overflow */
    if (!(data = realloc(buffer->data, capacity)))
        return -1;
    buffer->data = data;
    buffer->capacity = capacity;
    return 0;
}

/* What is put must have been reserved. */
static void put(struct buffer *buffer, const void *data, size_t size) {
    if (size)
        memcpy(buffer->data + buffer->size, data, size);
    buffer->size += size;
}

static void put_int32(struct buffer *buffer, int64_t value) {
    int32_t narrow = (int32_t)value;
    put(buffer, &narrow, sizeof narrow);
}

static void set_bit(uint8_t *bits, int64_t at) { bits[at >> 3] |= (uint8_t)(1u << (at & 7)); }

void columns_free(struct columns *columns) {
    if (!columns)
        return;
    free(columns->fixed);
    free(columns->key.data);
    free(columns->value.data);
    free(columns->header_name.data);
    free(columns->header_value.data);
    free(columns->header_name_end.data);
    free(columns->header_value_end.data);
    free(columns->header_value_valid.data);
    free(columns);
}

struct columns *columns_new(int64_t max_rows, struct columns_size hint) {
    struct columns *columns = calloc(1, sizeof *columns);
    size_t rows = (size_t)max_rows, ends = rows + 1, bits = (rows + 7) / 8;
    uint8_t *place;
    if (!columns)
        return NULL;
    /* Widest first, so that each column is aligned. */
    columns->fixed = calloc(1, rows * 16 + ends * 12 + rows + 2 * bits);
    /* One byte at least: Arrow wants an address for bytes, of nothing but nulls too. */
    if (!(place = columns->fixed) || reserve(&columns->key, hint.key + 1) ||
        reserve(&columns->value, hint.value + 1) ||
        reserve(&columns->header_name, hint.header_name + 1) ||
        reserve(&columns->header_value, hint.header_value + 1) ||
        reserve(&columns->header_name_end, 4 * (size_t)(hint.headers + 1)) ||
        reserve(&columns->header_value_end, 4 * (size_t)(hint.headers + 1))) {
        columns_free(columns);
        return NULL;
    }
    columns->offset = (int64_t *)place, place += rows * 8;
    columns->timestamp = (int64_t *)place, place += rows * 8;
    columns->key_end = (int32_t *)place, place += ends * 4;
    columns->value_end = (int32_t *)place, place += ends * 4;
    columns->headers_end = (int32_t *)place, place += ends * 4;
    columns->timestamp_type = (int8_t *)place, place += rows;
    columns->key_valid = place, place += bits;
    columns->value_valid = place;
    columns->max_rows = max_rows;
    put_int32(&columns->header_name_end, 0);
    put_int32(&columns->header_value_end, 0);
    return columns;
}

int64_t columns_rows(const struct columns *columns) { return columns->rows; }

int64_t columns_bytes(const struct columns *columns) { return columns->bytes; }

struct columns_size columns_size(const struct columns *columns) {
    return (struct columns_size){columns->key.size, columns->value.size, columns->header_name.size,
                                 columns->header_value.size, columns->headers};
}

/* Whether Arrow takes it for a string: UTF-8 without surrogates and overlong forms (RFC 3629). */
static int is_utf8(const uint8_t *text, size_t size) {
    size_t at = 0;
    while (at < size) {
        uint8_t first = text[at++], low = 0x80, high = 0xBF;
        int more;
        if (first < 0x80)
            continue;
        if (first >= 0xC2 && first <= 0xDF)
            more = 1;
        else if (first >= 0xE0 && first <= 0xEF) {
            more = 2;
            low = first == 0xE0 ? 0xA0 : 0x80;
            high = first == 0xED ? 0x9F : 0xBF;
        } else if (first >= 0xF0 && first <= 0xF4) {
            more = 3;
            low = first == 0xF0 ? 0x90 : 0x80;
            high = first == 0xF4 ? 0x8F : 0xBF;
        } else
            return 0;
        for (; more; more--, low = 0x80, high = 0xBF)
            if (at == size || text[at] < low || text[at++] > high)
                return 0;
    }
    return 1;
}

static int fits(const struct buffer *buffer, size_t more) {
    return more <= INT32_MAX && buffer->size <= INT32_MAX - more;
}

/* Measures and checks the headers of one record, and makes room for them. */
static enum appended room_for_headers(struct columns *columns, const rd_kafka_headers_t *headers,
                                      size_t count) {
    size_t names = 0, values = 0, size, at;
    const char *name;
    const void *value;
    if (count > (size_t)(INT32_MAX - columns->headers))
        return NO_ROOM;
    for (at = 0; at < count; at++) {
        size_t length;
        if (rdk.header_get_all(headers, at, &name, &value, &size))
            return OUT_OF_MEMORY; /* cannot be: there are `count` of them */
        length = strlen(name);    /* librdkafka ends names at a NUL, and so hides what follows one */
        if (!is_utf8((const uint8_t *)name, length))
            return NAME_NOT_UTF8;
        names += length;
        values += value ? size : 0;
        if (!fits(&columns->header_name, names) || !fits(&columns->header_value, values))
            return NO_ROOM;
    }
    if (reserve(&columns->header_name, names) || reserve(&columns->header_value, values) ||
        reserve(&columns->header_name_end, 4 * count) ||
        reserve(&columns->header_value_end, 4 * count) ||
        reserve(&columns->header_value_valid, count / 8 + 1))
        return OUT_OF_MEMORY;
    return APPENDED;
}

static void put_headers(struct columns *columns, const rd_kafka_headers_t *headers, size_t count) {
    const char *name;
    const void *value;
    size_t size, at;
    for (at = 0; at < count; at++) {
        int64_t place = columns->headers++;
        size_t length;
        static const uint8_t none = 0;
        rdk.header_get_all(headers, at, &name, &value, &size);
        length = strlen(name);
        if (!(place & 7))
            put(&columns->header_value_valid, &none, 1);
        put(&columns->header_name, name, length);
        put_int32(&columns->header_name_end, (int64_t)columns->header_name.size);
        if (value) {
            set_bit(columns->header_value_valid.data, place);
            put(&columns->header_value, value, size);
        } else
            columns->null_header_values++;
        put_int32(&columns->header_value_end, (int64_t)columns->header_value.size);
        columns->bytes += (int64_t)(length + (value ? size : 0));
    }
}

enum appended columns_append(struct columns *columns, const rd_kafka_message_t *message) {
    size_t key_size = message->key ? message->key_len : 0;
    size_t value_size = message->payload ? message->len : 0, count = 0;
    rd_kafka_headers_t *headers = NULL;
    int64_t row = columns->rows;
    int timestamp_type = 0;

    if (row == columns->max_rows || !fits(&columns->key, key_size) ||
        !fits(&columns->value, value_size))
        return NO_ROOM;
    if (!rdk.message_headers(message, &headers)) { /* an error means that there are none */
        enum appended room;
        count = rdk.header_cnt(headers);
        if ((room = room_for_headers(columns, headers, count)) != APPENDED)
            return room;
    }
    if (reserve(&columns->key, key_size) || reserve(&columns->value, value_size))
        return OUT_OF_MEMORY;

    columns->offset[row] = message->offset;
    columns->timestamp[row] = rdk.message_timestamp(message, &timestamp_type);
    columns->timestamp_type[row] = (int8_t)timestamp_type;
    if (message->key) {
        set_bit(columns->key_valid, row);
        put(&columns->key, message->key, key_size);
    } else
        columns->null_keys++;
    if (message->payload) {
        set_bit(columns->value_valid, row);
        put(&columns->value, message->payload, value_size);
    } else
        columns->null_values++;
    put_headers(columns, headers, count);
    columns->key_end[row + 1] = (int32_t)columns->key.size;
    columns->value_end[row + 1] = (int32_t)columns->value.size;
    columns->headers_end[row + 1] = (int32_t)columns->headers;
    columns->bytes += (int64_t)(key_size + value_size);
    columns->rows = row + 1;
    return APPENDED;
}

/* Children are released with their parent, unless somebody has moved them elsewhere. */
static void release(struct ArrowArray *array) {
    struct columns *columns = array->private_data;
    int64_t at;
    for (at = 0; at < array->n_children; at++)
        if (array->children[at]->release)
            array->children[at]->release(array->children[at]);
    array->release = NULL;
    if (atomic_fetch_sub(&columns->shares, 1) == 1)
        columns_free(columns);
}

static void set_array(struct columns *columns, int at, int64_t length, const void *valid,
                      int64_t nulls, const void *second, const void *third) {
    const void **buffers = columns->buffers[at];
    buffers[0] = nulls ? valid : NULL;
    buffers[1] = second;
    buffers[2] = third;
    columns->arrays[at] = (struct ArrowArray){.length = length,
                                              .null_count = nulls,
                                              .n_buffers = third ? 3 : second ? 2 : 1,
                                              .buffers = buffers,
                                              .release = release,
                                              .private_data = columns};
}

static void set_children(struct ArrowArray *array, struct ArrowArray **children, int64_t count) {
    array->n_children = count;
    array->children = children;
}

void columns_export(struct columns *columns, struct ArrowArray *out) {
    struct ArrowArray *arrays = columns->arrays;
    int64_t rows = columns->rows, headers = columns->headers;
    int at;
    set_array(columns, OFFSET, rows, NULL, 0, columns->offset, NULL);
    set_array(columns, TIMESTAMP, rows, NULL, 0, columns->timestamp, NULL);
    set_array(columns, TIMESTAMP_TYPE, rows, NULL, 0, columns->timestamp_type, NULL);
    set_array(columns, KEY, rows, columns->key_valid, columns->null_keys, columns->key_end,
              columns->key.data);
    set_array(columns, VALUE, rows, columns->value_valid, columns->null_values, columns->value_end,
              columns->value.data);
    set_array(columns, HEADERS, rows, NULL, 0, columns->headers_end, NULL);
    set_array(columns, ROOT, rows, NULL, 0, NULL, NULL);
    set_array(columns, HEADER, headers, NULL, 0, NULL, NULL);
    set_array(columns, HEADER_NAME, headers, NULL, 0, columns->header_name_end.data,
              columns->header_name.data);
    set_array(columns, HEADER_VALUE, headers, columns->header_value_valid.data,
              columns->null_header_values, columns->header_value_end.data,
              columns->header_value.data);
    for (at = 0; at < COLUMNS; at++)
        columns->children[at] = arrays + at;
    columns->element[0] = arrays + HEADER;
    columns->header[0] = arrays + HEADER_NAME;
    columns->header[1] = arrays + HEADER_VALUE;
    set_children(arrays + ROOT, columns->children, COLUMNS);
    set_children(arrays + HEADERS, columns->element, 1);
    set_children(arrays + HEADER, columns->header, 2);
    atomic_store(&columns->shares, ARRAYS);
    *out = arrays[ROOT];
}

/* For a caller whom nobody took the columns from. */
KB_API void kb_array_release(struct ArrowArray *array) {
    if (array->release)
        array->release(array);
}
