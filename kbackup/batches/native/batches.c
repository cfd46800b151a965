/* Kafka's record batches (magic 2): their headers and records to columns, and columns to records.

   Nothing is read beyond the bytes that were given, whatever they hold; records are checked by one
   pass and copied by a second one over the same bytes.

   Source: Kafka's message format, version 2; RFC 3720 appendix B.4 for CRC32C. */
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

#define KB_API __attribute__((visibility("default")))

KB_API const char *kb_digest(void) { return KB_DIGEST; }

/* --- CRC32C ------------------------------------------------------------------------------- */

static uint32_t tables[8][256];
static int has_tables;

static void fill_tables(void) {
    for (uint32_t at = 0; at < 256; at++) {
        uint32_t crc = at;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ 0x82F63B78u : crc >> 1;
        tables[0][at] = crc;
    }
    for (int row = 1; row < 8; row++)
        for (int at = 0; at < 256; at++)
            tables[row][at] = tables[row - 1][at] >> 8 ^ tables[0][tables[row - 1][at] & 255];
    __atomic_store_n(&has_tables, 1, __ATOMIC_RELEASE); /* two threads would write the same */
}

static uint32_t crc_by_tables(uint32_t crc, const uint8_t *data, int64_t size) {
    for (; size >= 8; data += 8, size -= 8) {
        uint64_t word;
        memcpy(&word, data, 8);
        word ^= crc;
        crc = 0;
        for (int byte = 0; byte < 8; byte++)
            crc ^= tables[7 - byte][word >> 8 * byte & 255];
    }
    while (size-- > 0)
        crc = crc >> 8 ^ tables[0][(crc ^ *data++) & 255];
    return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t crc_by_processor(uint32_t crc, const uint8_t *data,
                                                                   int64_t size) {
    uint64_t wide = crc;
    for (; size >= 8; data += 8, size -= 8) {
        uint64_t word;
        memcpy(&word, data, 8);
        wide = _mm_crc32_u64(wide, word);
    }
    for (crc = (uint32_t)wide; size-- > 0; data++)
        crc = _mm_crc32_u8(crc, *data);
    return crc;
}
#endif

/* The register after `data`, from the register before it; CRC32C begins with all bits set, and ends
   with all inverted. */
static uint32_t crc_over(uint32_t crc, const uint8_t *data, int64_t size) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2"))
        return crc_by_processor(crc, data, size);
#endif
    if (!__atomic_load_n(&has_tables, __ATOMIC_ACQUIRE))
        fill_tables();
    return crc_by_tables(crc, data, size);
}

KB_API uint32_t kb_crc32c(const uint8_t *data, int64_t size) { return ~crc_over(~0u, data, size); }

/* The product of two polynomials, modulo that of CRC32C; the highest bit is that of x**0. */
static uint32_t product(uint32_t one, uint32_t other) {
    uint32_t found = 0;
    for (; one; one <<= 1) {
        if (one & 0x80000000u)
            found ^= other;
        other = other & 1 ? other >> 1 ^ 0x82F63B78u : other >> 1;
    }
    return found;
}

/* What of a register is left after `size` zero bytes. */
static uint32_t crc_shifted(uint32_t crc, int64_t size) {
    uint32_t power = 0x00800000u; /* x**8 */
    for (; size; size >>= 1, power = product(power, power))
        if (size & 1)
            crc = product(crc, power);
    return crc;
}

/* The CRC32C of bytes whose own is `first`, with `size` others behind them whose own is `second`. */
KB_API uint32_t kb_crc32c_joined(uint32_t first, uint32_t second, int64_t size) {
    return crc_shifted(first, size) ^ second;
}

/* --- Headers ------------------------------------------------------------------------------ */

enum { HEADER_BYTES = 61, CHECKED_FROM = 21 };

enum why { SOUND, CUT_SHORT, OLD_MAGIC, BAD_LENGTH, BAD_CRC, BAD_COUNT, BAD_OFFSET };

struct headers {
    int64_t *base_offset, *position, *length, *base_timestamp, *max_timestamp, *producer_id;
    int32_t *leader_epoch, *last_delta, *base_sequence, *count;
    uint32_t *crc, *records_crc;
    int16_t *attributes, *producer_epoch;
};

static uint64_t big(const uint8_t *data, int bytes) {
    uint64_t found = 0;
    while (bytes--)
        found = found << 8 | *data++;
    return found;
}

static int32_t int32_at(const uint8_t *data) { return (int32_t)big(data, 4); }
static int64_t int64_at(const uint8_t *data) { return (int64_t)big(data, 8); }

/* Walks the batches that `data` begins with: without `out` counts them, else fills its columns and
   checks what their CRC32C covers.  Returns how many are whole and sound; `end` says where the
   next one would begin, and `why` what is the matter with it. */
KB_API int64_t kb_batches_walk(const uint8_t *data, int64_t size, int64_t room,
                               const struct headers *out, int64_t *end, int32_t *why) {
    int64_t rows = 0, at = 0, next = 0;
    *why = SOUND;
    while (at < size && (!out || rows < room)) {
        const uint8_t *batch = data + at;
        int64_t base, length;
        int32_t delta, count;
        if (size - at < 17) { /* up to its magic byte */
            *why = CUT_SHORT;
            break;
        }
        base = int64_at(batch);
        length = (int64_t)int32_at(batch + 8) + 12;
        if (batch[16] != 2) {
            *why = batch[16] < 2 ? OLD_MAGIC : BAD_LENGTH;
            break;
        }
        if (length < HEADER_BYTES || length > INT32_MAX) {
            *why = BAD_LENGTH;
            break;
        }
        if (length > size - at) {
            *why = CUT_SHORT;
            break;
        }
        delta = int32_at(batch + 23);
        count = int32_at(batch + 57);
        if (out) {
            uint32_t head = ~crc_over(~0u, batch + CHECKED_FROM, HEADER_BYTES - CHECKED_FROM);
            uint32_t body = kb_crc32c(batch + HEADER_BYTES, length - HEADER_BYTES);
            uint32_t crc = (uint32_t)big(batch + 17, 4);
            if (kb_crc32c_joined(head, body, length - HEADER_BYTES) != crc) {
                *why = BAD_CRC;
                break;
            }
            if (delta < 0 || count < 0 || count > (int64_t)delta + 1) {
                *why = BAD_COUNT;
                break;
            }
            if (base < next || base > INT64_MAX - 1 - delta) {
                *why = BAD_OFFSET;
                break;
            }
            next = base + delta + 1;
            out->base_offset[rows] = base;
            out->position[rows] = at;
            out->length[rows] = length;
            out->leader_epoch[rows] = int32_at(batch + 12);
            out->crc[rows] = crc;
            out->records_crc[rows] = body;
            out->attributes[rows] = (int16_t)big(batch + 21, 2);
            out->last_delta[rows] = delta;
            out->base_timestamp[rows] = int64_at(batch + 27);
            out->max_timestamp[rows] = int64_at(batch + 35);
            out->producer_id[rows] = int64_at(batch + 43);
            out->producer_epoch[rows] = (int16_t)big(batch + 51, 2);
            out->base_sequence[rows] = int32_at(batch + 53);
            out->count[rows] = count;
        }
        rows++;
        at += length;
    }
    *end = at;
    return rows;
}

/* --- Records ------------------------------------------------------------------------------ */

/* Bytes of the records of one batch: all that are left, or the beginning of them. */
struct piece {
    const uint8_t *data;
    int64_t size, base_offset, base_timestamp, max_timestamp;
    int64_t left;     /* records from here on */
    int64_t previous; /* the offset delta of the record before, -1 without one */
    int64_t used;     /* bytes, set by `kb_records_measure` as are `left` and `previous` */
    int32_t last_delta, is_append_time, is_last;
    int32_t taken; /* records in these bytes, set by `kb_records_measure` */
};

/* Fills a piece for each of `count` batches in `data`, as if none of them were compressed. */
KB_API void kb_batches_pieces(const uint8_t *data, const struct headers *of, int64_t count,
                              struct piece *out) {
    memset(out, 0, (size_t)count * sizeof *out);
    for (int64_t at = 0; at < count; at++, out++) {
        out->data = data + of->position[at] + HEADER_BYTES;
        out->size = of->length[at] - HEADER_BYTES;
        out->base_offset = of->base_offset[at];
        out->base_timestamp = of->base_timestamp[at];
        out->max_timestamp = of->max_timestamp[at];
        out->left = of->count[at];
        out->previous = -1;
        out->last_delta = of->last_delta[at];
        out->is_append_time = of->attributes[at] >> 3 & 1;
        out->is_last = 1;
    }
}

struct measured {
    int64_t rows, key, value, headers, name, header_value; /* bytes but for the counts */
    int64_t null_keys, null_values, null_header_values;
    int64_t min_timestamp, max_timestamp; /* of records that have one; the former larger: none has */
    int64_t bad_piece, wanted;            /* bytes that the next record needs, where it says so */
    int64_t other_names;                  /* of headers, that are not ASCII */
};

enum fault { FINE, NO_VARINT, BAD_SIZE, BAD_DELTA, LEFT_OVER, TOO_FEW, TOO_LARGE };

/* A varint of 32 or 64 bits after zigzag; NULL beyond `end`, or where it has too many bits. */
static const uint8_t *varint(const uint8_t *at, const uint8_t *end, int64_t *found) {
    uint64_t bits;
    int shift = 7;
    if (at == end)
        return NULL;
    bits = *at++;
    if (bits & 128) {
        bits &= 127;
        for (;; shift += 7) {
            uint64_t byte;
            if (at == end || shift > 63)
                return NULL;
            byte = *at++;
            if (shift == 63 && byte > 1)
                return NULL;
            bits |= (byte & 127) << shift;
            if (!(byte & 128))
                break;
        }
    }
    *found = (int64_t)(bits >> 1) ^ -(int64_t)(bits & 1);
    return at;
}

/* Passes over a length and as many bytes; -1 stands for null, where that is allowed. */
static const uint8_t *sized(const uint8_t *at, const uint8_t *end, int64_t lowest, int64_t *size) {
    if (!(at = varint(at, end, size)) || *size < lowest || *size > end - at)
        return NULL;
    return *size > 0 ? at + *size : at;
}

static int64_t timestamp_of(const struct piece *piece, int64_t delta) {
    if (piece->is_append_time)
        return piece->max_timestamp;
    return (int64_t)((uint64_t)piece->base_timestamp + (uint64_t)delta); /* Java wraps, too */
}

static int is_ascii(const uint8_t *at, const uint8_t *end) {
    uint8_t bits = 0;
    while (at < end)
        bits |= *at++;
    return bits < 128;
}

static enum fault measure_record(const uint8_t *at, const uint8_t *end, int is_in, int64_t time,
                                 struct measured *out) {
    int64_t key, value, headers, name, content;
    if (!(at = sized(at, end, -1, &key)) || !(at = sized(at, end, -1, &value)) ||
        !(at = varint(at, end, &headers)))
        return BAD_SIZE;
    if (headers < 0 || headers > (end - at) / 2)
        return BAD_SIZE;
    if (is_in) {
        out->rows++;
        out->headers += headers;
        out->key += key < 0 ? 0 : key;
        out->value += value < 0 ? 0 : value;
        out->null_keys += key < 0;
        out->null_values += value < 0;
        if (time != -1) {
            out->min_timestamp = time < out->min_timestamp ? time : out->min_timestamp;
            out->max_timestamp = time > out->max_timestamp ? time : out->max_timestamp;
        }
    }
    for (; headers; headers--) {
        if (!(at = sized(at, end, 0, &name)))
            return BAD_SIZE;
        if (is_in) {
            out->name += name;
            out->other_names += !is_ascii(at - name, at);
        }
        if (!(at = sized(at, end, -1, &content)))
            return BAD_SIZE;
        if (is_in) {
            out->header_value += content < 0 ? 0 : content;
            out->null_header_values += content < 0;
        }
    }
    return at == end ? FINE : BAD_SIZE;
}

static enum fault measure_piece(struct piece *piece, int64_t start, int64_t end, int64_t most,
                                struct measured *out) {
    const uint8_t *at = piece->data, *stop = piece->data + piece->size;
    piece->taken = 0;
    piece->used = 0;
    while (piece->left) {
        int64_t size, time, delta;
        const uint8_t *record = varint(at, stop, &size);
        enum fault fault;
        if (!record) {
            if (piece->is_last || stop - at > 9)
                return stop - at > 9 ? NO_VARINT : TOO_FEW;
            out->wanted = 10;
            return FINE;
        }
        if (size < 1)
            return BAD_SIZE;
        if (size > most)
            return TOO_LARGE;
        if (size > stop - record) {
            if (piece->is_last)
                return TOO_FEW;
            out->wanted = size + (record - at);
            return FINE;
        }
        at = record + size;
        record++; /* its attributes, none of which is defined */
        if (!(record = varint(record, at, &time)) || !(record = varint(record, at, &delta)))
            return NO_VARINT;
        if (delta <= piece->previous || delta > piece->last_delta)
            return BAD_DELTA;
        fault = measure_record(record, at,
                               piece->base_offset + delta >= start && piece->base_offset + delta < end,
                               timestamp_of(piece, time), out);
        if (fault)
            return fault;
        piece->previous = delta;
        piece->left--;
        piece->taken++;
        piece->used = at - piece->data;
    }
    return at == stop ? FINE : LEFT_OVER;
}

/* Checks records, and says how much room those need whose offsets are from `start` to before `end`.
   Only the last piece may lack its end (`is_last`). */
KB_API int32_t kb_records_measure(struct piece *pieces, int64_t count, int64_t start, int64_t end,
                                  int64_t most, struct measured *out) {
    memset(out, 0, sizeof *out);
    out->min_timestamp = INT64_MAX;
    out->max_timestamp = INT64_MIN;
    for (int64_t at = 0; at < count; at++) {
        enum fault fault = measure_piece(pieces + at, start, end, most, out);
        if (fault) {
            out->bad_piece = at;
            return fault;
        }
    }
    return FINE;
}

/* Says where the records of each batch end that lie one behind the other; returns how many batches
   have all of theirs, and all of them only if nothing is left over. */
KB_API int64_t kb_records_split(const uint8_t *data, int64_t size, const int64_t *counts,
                                int64_t batches, int64_t *ends) {
    const uint8_t *at = data, *stop = data + size;
    for (int64_t batch = 0; batch < batches; batch++) {
        for (int64_t left = counts[batch]; left > 0; left--) {
            int64_t length;
            if (!(at = sized(at, stop, 1, &length)))
                return batch;
        }
        ends[batch] = at - data;
    }
    return at == stop ? batches : 0;
}

struct columns {
    int64_t *offset, *timestamp;
    int8_t *timestamp_type;
    int32_t *key_end, *value_end, *headers_end, *name_end, *header_value_end; /* [0] is 0 */
    uint8_t *key, *value, *name, *header_value;
    uint8_t *key_valid, *value_valid, *header_value_valid; /* NULL: none is null; else zeros */
};

static int64_t number(const uint8_t **at) {
    const uint8_t *byte = *at;
    uint64_t bits = *byte & 127;
    for (int shift = 7; *byte++ & 128; shift += 7)
        bits |= (uint64_t)(*byte & 127) << shift;
    *at = byte;
    return (int64_t)(bits >> 1) ^ -(int64_t)(bits & 1);
}

static void copy(const uint8_t **at, int64_t row, uint8_t *bytes, int32_t *ends, uint8_t *valid) {
    int64_t size = number(at);
    int32_t place = ends[row];
    ends[row + 1] = place;
    if (size < 0)
        return;
    if (size)
        memcpy(bytes + place, *at, (size_t)size);
    *at += size;
    ends[row + 1] = place + (int32_t)size;
    if (valid)
        valid[row >> 3] |= (uint8_t)(1u << (row & 7));
}

/* Copies what was measured, from the same bytes. */
KB_API void kb_records_copy(const struct piece *pieces, int64_t count, int64_t start, int64_t end,
                            const struct columns *out) {
    int64_t row = 0, header = 0;
    out->key_end[0] = out->value_end[0] = out->headers_end[0] = 0;
    out->name_end[0] = out->header_value_end[0] = 0;
    for (const struct piece *piece = pieces; piece < pieces + count; piece++) {
        const uint8_t *at = piece->data;
        for (int32_t left = piece->taken; left; left--) {
            int64_t size = number(&at), time, offset, headers;
            const uint8_t *next = at + size;
            at++;
            time = number(&at);
            offset = piece->base_offset + number(&at);
            if (offset >= start && offset < end) {
                out->offset[row] = offset;
                out->timestamp[row] = timestamp_of(piece, time);
                out->timestamp_type[row] = piece->is_append_time ? 2 : 1;
                copy(&at, row, out->key, out->key_end, out->key_valid);
                copy(&at, row, out->value, out->value_end, out->value_valid);
                for (headers = number(&at); headers; headers--, header++) {
                    copy(&at, header, out->name, out->name_end, NULL);
                    copy(&at, header, out->header_value, out->header_value_end,
                         out->header_value_valid);
                }
                out->headers_end[++row] = (int32_t)header;
            }
            at = next;
        }
    }
}

/* --- Records from columns ----------------------------------------------------------------- */

/* https://arrow.apache.org/docs/format/CDataInterface.html */
struct ArrowArray {
    int64_t length, null_count, offset, n_buffers, n_children;
    const void **buffers;
    struct ArrowArray **children;
    struct ArrowArray *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};

/* A column of variable width; `offset` is where its first row is. */
struct texts {
    const uint8_t *valid, *data; /* no `valid`: no nulls */
    const int32_t *ends;
    int64_t offset;
};

/* The columns of records.SCHEMA that are sent. */
struct source {
    const uint8_t *timestamp_valid;
    const int64_t *offset, *timestamp;
    int64_t timestamp_offset;
    struct texts key, value, name, header_value;
    const int32_t *headers_end;
};

static int is_valid(const uint8_t *valid, int64_t at) {
    return !valid || valid[at >> 3] >> (at & 7) & 1;
}

static struct texts texts_of(const struct ArrowArray *array, int64_t offset) {
    return (struct texts){array->null_count ? array->buffers[0] : NULL, array->buffers[2],
                          array->buffers[1], array->offset + offset};
}

static struct source source_of(const struct ArrowArray *rows) {
    struct ArrowArray **columns = rows->children;
    const struct ArrowArray *time = columns[1], *headers = columns[5], *header = *headers->children;
    return (struct source){
        .offset = (const int64_t *)columns[0]->buffers[1] + columns[0]->offset,
        .timestamp = (const int64_t *)time->buffers[1] + time->offset,
        .timestamp_valid = time->null_count ? time->buffers[0] : NULL,
        .timestamp_offset = time->offset,
        .key = texts_of(columns[3], 0),
        .value = texts_of(columns[4], 0),
        .name = texts_of(header->children[0], header->offset),
        .header_value = texts_of(header->children[1], header->offset),
        .headers_end = (const int32_t *)headers->buffers[1] + headers->offset,
    };
}

/* Where records go: nowhere as long as they are measured. */
struct out {
    uint8_t *at;
    int64_t size;
};

static void put_byte(struct out *out, uint8_t byte) {
    if (out->at)
        *out->at++ = byte;
    out->size++;
}

static void put_number(struct out *out, int64_t number) {
    uint64_t bits = (uint64_t)number << 1 ^ (uint64_t)(number >> 63);
    for (; bits > 127; bits >>= 7)
        put_byte(out, (uint8_t)(bits | 128));
    put_byte(out, (uint8_t)bits);
}

static void put_text(struct out *out, const struct texts *texts, int64_t row) {
    int64_t at = texts->offset + row, size;
    if (!is_valid(texts->valid, at)) {
        put_number(out, -1);
        return;
    }
    size = texts->ends[at + 1] - texts->ends[at];
    put_number(out, size);
    if (out->at && size) {
        memcpy(out->at, texts->data + texts->ends[at], (size_t)size);
        out->at += size;
    }
    out->size += size;
}

/* A record without its length. */
static void put_record(struct out *out, const struct source *source, int64_t row, int64_t time,
                       int64_t delta) {
    int32_t header = source->headers_end[row], end = source->headers_end[row + 1];
    put_byte(out, 0); /* attributes, none of which is defined */
    put_number(out, time);
    put_number(out, delta);
    put_text(out, &source->key, row);
    put_text(out, &source->value, row);
    put_number(out, end - header);
    for (; header < end; header++) {
        put_text(out, &source->name, header);
        put_text(out, &source->header_value, header);
    }
}

struct packed {
    int64_t rows, bytes, base_timestamp, max_timestamp;
};

/* Packs the records from `row` on, as many as `most` bytes take, one at least: measures them where
   there is no `to`, which has to have as many bytes.  A row without a timestamp is of `now`.  The
   columns are sound; those that are `dense` get offsets without gaps. */
KB_API void kb_records_pack(const struct ArrowArray *rows, int64_t row, int64_t most, int64_t now,
                            int32_t dense, uint8_t *to, struct packed *found) {
    struct source source = source_of(rows);
    struct out out = {to, 0};
    int64_t first = row;
    for (; row < rows->length; row++) {
        int is_timed = is_valid(source.timestamp_valid, source.timestamp_offset + row);
        int64_t time = is_timed ? source.timestamp[row] : now, delta;
        struct out size = {NULL, 0}, length = {NULL, 0};
        if (row == first)
            found->base_timestamp = found->max_timestamp = time;
        delta = dense ? row - first : source.offset[row] - source.offset[first];
        /* Java wraps, too */
        int64_t later = (int64_t)((uint64_t)time - (uint64_t)found->base_timestamp);
        put_record(&size, &source, row, later, delta);
        put_number(&length, size.size);
        if (row > first && out.size + length.size + size.size > most)
            break;
        if (time > found->max_timestamp)
            found->max_timestamp = time;
        if (to) {
            put_number(&out, size.size);
            put_record(&out, &source, row, later, delta);
        } else {
            out.size += length.size + size.size;
        }
    }
    found->rows = row - first;
    found->bytes = out.size;
}
