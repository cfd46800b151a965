/* Avro datums to columns, one pass over the bytes of each row: leaves.py calls it through ctypes.
 *
 * It knows records of plain values, each of which may be in a union with null.  It never says why
 * something is wrong: whatever is not exactly one datum a row is read again in Python, which does.
 *
 * Source: Apache Avro 1.12, "Binary Encoding". */
#include "avro.h"

#include <string.h>

/* What a leaf of a schema is; leaves.py has the same list. */
enum kind { INT8, INT16, INT32, INT64, FLOAT, DOUBLE, BOOLEAN, BYTES, FIXED, ENUM };

struct leaf {
    int32_t kind;
    int32_t some;   /* the branch that holds a value, of a union with null; -1 without a union */
    int32_t size;   /* bytes of a fixed, symbols of an enum */
    int32_t nulls;  /* result: how many */
    void *values;   /* result; of BYTES and FIXED where each ends in `text`, after a zero */
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

/* Reads a value, which is there. */
static inline int take_value(struct cursor *cursor, struct leaf *leaf, int64_t row,
                             const uint8_t *data) {
    int64_t number = 0;
    uint8_t byte = 0;
    int32_t *ends = leaf->values;
    switch ((enum kind)leaf->kind) {
    case INT8:
        return take_int(cursor, &number) &&
               (((int8_t *)leaf->values)[row] = (int8_t)number) == number;
    case INT16:
        return take_int(cursor, &number) &&
               (((int16_t *)leaf->values)[row] = (int16_t)number) == number;
    case INT32:
        return take_int(cursor, &number) &&
               (((int32_t *)leaf->values)[row] = (int32_t)number) == number;
    case INT64:
        return take_long(cursor, (int64_t *)leaf->values + row);
    case FLOAT: /* Arrow's and Avro's bytes are the same on the machines that it is built for */
        return take_bytes(cursor, (float *)leaf->values + row, sizeof(float));
    case DOUBLE:
        return take_bytes(cursor, (double *)leaf->values + row, sizeof(double));
    case BOOLEAN:
        if (!take_bytes(cursor, &byte, 1) || byte > 1)
            return 0;
        if (byte)
            set_bit(leaf->values, row);
        return 1;
    case BYTES:
        if (!take_long(cursor, &number))
            return 0;
        break;
    case FIXED:
        number = leaf->size;
        break;
    case ENUM:
        if (!take_int(cursor, &number) || number < 0 || number >= leaf->size)
            return 0;
        ((int32_t *)leaf->values)[row] = (int32_t)number;
        return 1;
    }
    if (number < 0 || cursor->end - cursor->at < number)
        return 0;
    leaf->starts[row] = (int32_t)(cursor->at - data);
    ends[row + 1] = ends[row] + (int32_t)number;
    cursor->at += number;
    return 1;
}

/* A null's value is zero, and its text empty. */
static inline void put_null(struct leaf *leaf, int64_t row) {
    int32_t *ends = leaf->values;
    leaf->nulls++;
    switch ((enum kind)leaf->kind) {
    case INT8:
        ((int8_t *)leaf->values)[row] = 0;
        break;
    case INT16:
        ((int16_t *)leaf->values)[row] = 0;
        break;
    case INT32:
    case FLOAT:
    case ENUM:
        ((int32_t *)leaf->values)[row] = 0;
        break;
    case INT64:
    case DOUBLE:
        ((int64_t *)leaf->values)[row] = 0;
        break;
    case BOOLEAN:
        break; /* the bitmap is zero */
    case BYTES:
    case FIXED:
        leaf->starts[row] = 0;
        ends[row + 1] = ends[row];
        break;
    }
}

/* Reads `rows` datums of `count` leaves each into the leaves' columns.  Row r is data[ends[r]] to
 * data[ends[r + 1]].  Returns whether each row is exactly one datum. */
KB_API int kb_avro_read(const uint8_t *data, const int32_t *ends, int64_t rows,
                        struct leaf *leaves, int32_t count) {
    for (int64_t row = 0; row < rows; row++) {
        struct cursor cursor = {data + ends[row], data + ends[row + 1]};
        for (int32_t at = 0; at < count; at++) {
            struct leaf *leaf = &leaves[at];
            if (leaf->some >= 0) {
                int64_t branch;
                if (!take_int(&cursor, &branch) || branch < 0 || branch > 1)
                    return 0;
                if (branch != leaf->some) {
                    put_null(leaf, row);
                    continue;
                }
                set_bit(leaf->valid, row);
            }
            if (!take_value(&cursor, leaf, row, data))
                return 0;
        }
        if (cursor.at != cursor.end)
            return 0;
    }
    return 1;
}

/* Copies what kb_avro_read() has found of a leaf of BYTES or FIXED.  Returns whether all of it is
 * ASCII. */
KB_API int kb_avro_copy(const uint8_t *data, const struct leaf *leaf, int64_t rows, uint8_t *out) {
    const int32_t *ends = leaf->values;
    uint8_t seen = 0;
    for (int64_t row = 0; row < rows; row++)
        memcpy(out + ends[row], data + leaf->starts[row], (size_t)(ends[row + 1] - ends[row]));
    for (int32_t at = 0; at < ends[rows]; at++)
        seen |= out[at];
    return seen < 128;
}
