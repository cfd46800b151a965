/* Avro datums to columns, one pass over the bytes of each row: avro_columns.py calls it through
 * ctypes.
 *
 * It knows records, arrays, maps and plain values, each of which may be in a union with null.  It
 * never says why something is wrong: whatever is not exactly one datum a row is read again in
 * Python, which does.
 *
 * Source: Apache Avro 1.12, "Binary Encoding". */
#include "avro.h"

#include <string.h>

/* What a part of a schema is; avro_walk.py has the same list.  The parts within a RECORD, an
 * ARRAY or a MAP follow it; a map is an array of records of key, which is BYTES, and value. */
enum kind {
    INT8, INT16, INT32, INT64, FLOAT, DOUBLE, BOOLEAN, BYTES, FIXED, ENUM, RECORD, ARRAY, MAP
};

struct part {
    int32_t kind;
    int32_t some;   /* the branch that holds a value, of a union with null; -1 without a union */
    int32_t size;   /* bytes of a fixed, symbols of an enum, parts within */
    int32_t room;   /* of arrays and maps: the items that there is memory for; 0: too few */
    void *values;   /* result; of BYTES, FIXED, ARRAY and MAP where each ends, after a zero */
    uint8_t *valid; /* result: a bitmap of zeros before; NULL without a union */
    int32_t *starts; /* result: where each of BYTES and FIXED is in the data */
};

KB_API const char *kb_digest(void) {
    return KB_DIGEST;
}

static inline int take_bytes(struct cursor *cursor, void *to, int64_t size) {
    if (cursor->end - cursor->at < size)
        return 0;
    memcpy(to, cursor->at, (size_t)size);
    cursor->at += size;
    return 1;
}

static inline void set_bit(uint8_t *bits, int64_t row) {
    bits[row >> 3] |= (uint8_t)(1u << (row & 7));
}

static const uint8_t *take_items(struct cursor cursor, struct part *array, int64_t row,
                                 const uint8_t *data);

/* Reads a value, which is there. */
static inline int take_value(struct cursor *cursor, struct part *part, int64_t row,
                             const uint8_t *data) {
    int64_t number = 0;
    uint8_t byte = 0;
    int32_t *ends = part->values;
    switch ((enum kind)part->kind) {
    case INT8:
        return take_int(cursor, &number) &&
               (((int8_t *)part->values)[row] = (int8_t)number) == number;
    case INT16:
        return take_int(cursor, &number) &&
               (((int16_t *)part->values)[row] = (int16_t)number) == number;
    case INT32:
        return take_int(cursor, &number) &&
               (((int32_t *)part->values)[row] = (int32_t)number) == number;
    case INT64:
        return take_long(cursor, (int64_t *)part->values + row);
    case FLOAT: /* Arrow's and Avro's bytes are the same on the machines that it is built for */
        return take_bytes(cursor, (float *)part->values + row, sizeof(float));
    case DOUBLE:
        return take_bytes(cursor, (double *)part->values + row, sizeof(double));
    case BOOLEAN:
        if (!take_bytes(cursor, &byte, 1) || byte > 1)
            return 0;
        if (byte)
            set_bit(part->values, row);
        return 1;
    case BYTES:
        if (!take_long(cursor, &number))
            return 0;
        break;
    case FIXED:
        number = part->size;
        break;
    case ENUM:
        if (!take_int(cursor, &number) || number < 0 || number >= part->size)
            return 0;
        ((int32_t *)part->values)[row] = (int32_t)number;
        return 1;
    case RECORD:
        return 1; /* its fields follow */
    case ARRAY:
    case MAP:
        cursor->at = take_items(*cursor, part, row, data);
        return cursor->at != NULL;
    }
    if (number < 0 || cursor->end - cursor->at < number)
        return 0;
    part->starts[row] = (int32_t)(cursor->at - data);
    ends[row + 1] = ends[row] + (int32_t)number;
    cursor->at += number;
    return 1;
}

/* A null's value is zero, and its text empty. */
static inline void put_null(struct part *part, int64_t row) {
    int32_t *ends = part->values;
    switch ((enum kind)part->kind) {
    case INT8:
        ((int8_t *)part->values)[row] = 0;
        break;
    case INT16:
        ((int16_t *)part->values)[row] = 0;
        break;
    case INT32:
    case FLOAT:
    case ENUM:
        ((int32_t *)part->values)[row] = 0;
        break;
    case INT64:
    case DOUBLE:
        ((int64_t *)part->values)[row] = 0;
        break;
    case BOOLEAN:
    case RECORD:
        break; /* the bitmaps are zero */
    case BYTES:
    case FIXED:
        part->starts[row] = 0;
        ends[row + 1] = ends[row];
        break;
    case ARRAY:
    case MAP:
        ends[row + 1] = ends[row];
        break;
    }
}

/* The part that follows with the same rows as this one: behind the items of an array or a map. */
static inline struct part *next(struct part *part) {
    return part + 1 + (part->kind >= ARRAY ? part->size : 0);
}

/* Puts a null, and into each field of a record that is null; returns the part that follows. */
static struct part *put_nulls(struct part *part, int64_t row) {
    struct part *end = part->kind == RECORD ? part + 1 + part->size : next(part);
    for (; part < end; part = next(part))
        put_null(part, row);
    return end;
}

/* Reads a row of `count` parts; returns where it ends, NULL where it is none.  The cursor is a
 * copy, which stays in registers. */
static const uint8_t *take_row(struct cursor cursor, struct part *part, int32_t count, int64_t row,
                               const uint8_t *data) {
    struct part *end = part + count;
    while (part < end) {
        if (part->some >= 0) {
            int64_t branch;
            if (!take_int(&cursor, &branch) || branch < 0 || branch > 1)
                return NULL;
            if (branch != part->some) {
                part = put_nulls(part, row);
                continue;
            }
            set_bit(part->valid, row);
        }
        if (!take_value(&cursor, part, row, data))
            return NULL;
        part = next(part);
    }
    return cursor.at;
}

enum { KEYS_MOST = 64 }; /* each is compared with all before it */

/* Whether a map's keys, from one item to another, are few, and no two are alike: what becomes of
 * those is not decided here. */
static int are_distinct(const struct part *keys, int32_t from, int32_t to, const uint8_t *data) {
    const int32_t *ends = keys->values, *starts = keys->starts;
    if (to - from > KEYS_MOST)
        return 0;
    for (int32_t at = from; at < to; at++)
        for (int32_t other = from; other < at; other++) {
            int32_t size = ends[at + 1] - ends[at];
            if (size == ends[other + 1] - ends[other] &&
                memcmp(data + starts[at], data + starts[other], (size_t)size) == 0)
                return 0;
        }
    return 1;
}

/* Reads the blocks of an array or a map, as take_row().  An item takes a byte at least, so the
 * bytes bound the loop. */
static const uint8_t *take_items(struct cursor cursor, struct part *array, int64_t row,
                                 const uint8_t *data) {
    int32_t *ends = array->values, item = ends[row];
    for (;;) {
        int64_t count, bytes;
        if (!take_long(&cursor, &count))
            return NULL;
        if (count == INT64_MIN || (count < 0 && !take_long(&cursor, &bytes)))
            return NULL;
        if (count == 0)
            break;
        for (count = count < 0 ? -count : count; count; count--, item++) {
            if (item == array->room) {
                array->room = 0;
                return NULL;
            }
            cursor.at = take_row(cursor, array + 1, array->size, item, data);
            if (cursor.at == NULL)
                return NULL;
        }
    }
    if (array->kind == MAP && !are_distinct(array + 2, ends[row], item, data))
        return NULL;
    ends[row + 1] = item;
    return cursor.at;
}

/* Reads the datums from `row` to `rows` into the columns of `count` parts.  Row r is data[ends[r]]
 * to data[ends[r + 1]].  Returns the first row that is not exactly one datum, or has an array with
 * more items than its room, which is 0 then: with more room, reading goes on at that row. */
KB_API int64_t kb_avro_read(const uint8_t *data, const int32_t *ends, int64_t row, int64_t rows,
                            struct part *parts, int32_t count) {
    for (; row < rows; row++) {
        struct cursor cursor = {data + ends[row], data + ends[row + 1]};
        if (take_row(cursor, parts, count, row, data) != cursor.end)
            break;
    }
    return row;
}

/* Copies what kb_avro_read() has found of a part of BYTES or FIXED.  Returns whether all of it is
 * ASCII. */
KB_API int kb_avro_copy(const uint8_t *data, const struct part *part, int64_t rows, uint8_t *out) {
    const int32_t *ends = part->values;
    uint8_t seen = 0;
    for (int64_t row = 0; row < rows; row++)
        memcpy(out + ends[row], data + part->starts[row], (size_t)(ends[row + 1] - ends[row]));
    for (int32_t at = 0; at < ends[rows]; at++)
        seen |= out[at];
    return seen < 128;
}
