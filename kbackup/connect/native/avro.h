/* What avro.c and walk.c share: the bytes of one value, and Avro's numbers. */
#ifndef KBACKUP_AVRO_H
#define KBACKUP_AVRO_H

#include <stdint.h>

#define KB_API __attribute__((visibility("default")))

struct cursor {
    const uint8_t *at;
    const uint8_t *end;
};

/* Whether a number of at most 64 bits follows; it is in *found then. */
static inline int take_long(struct cursor *cursor, int64_t *found) {
    uint64_t bits = 0;
    for (int shift = 0; shift < 64 && cursor->at < cursor->end; shift += 7) {
        uint8_t byte = *cursor->at++;
        bits |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) {
            *found = (int64_t)(bits >> 1) ^ -(int64_t)(bits & 1);
            return shift < 63 || byte <= 1;
        }
    }
    return 0;
}

/* Whether a number of at most 32 bits follows, in five bytes at most, as Java's reader takes it. */
static inline int take_int(struct cursor *cursor, int64_t *found) {
    const uint8_t *start = cursor->at;
    return take_long(cursor, found) && cursor->at - start <= 5 && *found == (int32_t)*found;
}

#endif
