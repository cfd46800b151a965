/* The part of librdkafka's public interface that is used here, as rdkafka.h of librdkafka 1.6 and
 * later declares it.  Nothing is linked: the functions are looked up at run time in the
 * librdkafka that confluent-kafka has loaded, so building needs neither its header nor its
 * library.  The types are part of librdkafka's stable ABI. */
#ifndef KBACKUP_RDKAFKA_H
#define KBACKUP_RDKAFKA_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct rd_kafka_s rd_kafka_t;
typedef struct rd_kafka_conf_s rd_kafka_conf_t;
typedef struct rd_kafka_error_s rd_kafka_error_t;
typedef struct rd_kafka_headers_s rd_kafka_headers_t;
typedef struct rd_kafka_op_s rd_kafka_event_t;
typedef struct rd_kafka_queue_s rd_kafka_queue_t;
typedef struct rd_kafka_topic_s rd_kafka_topic_t;

typedef struct rd_kafka_message_s {
    int err;
    rd_kafka_topic_t *rkt;
    int32_t partition;
    void *payload; /* NULL: a null value */
    size_t len;
    void *key; /* NULL: a null key */
    size_t key_len;
    int64_t offset;
    void *_private; /* confluent-kafka takes it for an object of its own: always NULL here */
} rd_kafka_message_t;

typedef struct rd_kafka_topic_partition_s {
    char *topic;
    int32_t partition;
    int64_t offset;
    void *metadata;
    size_t metadata_size;
    void *opaque;
    int err;
    void *_private;
} rd_kafka_topic_partition_t;

/* One argument of rd_kafka_produceva(). */
typedef struct rd_kafka_vu_s {
    int vtype;
    union {
        const char *cstr;
        rd_kafka_topic_t *rkt;
        int i;
        int32_t i32;
        int64_t i64;
        struct {
            void *ptr;
            size_t size;
        } mem;
        rd_kafka_headers_t *headers;
        void *ptr;
        char _pad[64];
    } u;
} rd_kafka_vu_t;

enum { RD_KAFKA_EVENT_FETCH = 2, RD_KAFKA_EVENT_ERROR = 8 };
enum {
    RD_KAFKA_VTYPE_RKT = 2,
    RD_KAFKA_VTYPE_PARTITION = 3,
    RD_KAFKA_VTYPE_VALUE = 4,
    RD_KAFKA_VTYPE_KEY = 5,
    RD_KAFKA_VTYPE_MSGFLAGS = 7,
    RD_KAFKA_VTYPE_TIMESTAMP = 8,
    RD_KAFKA_VTYPE_HEADERS = 10
};
enum { RD_KAFKA_MSG_F_COPY = 2 };
enum { RD_KAFKA_RESP_ERR__QUEUE_FULL = -184 };

typedef int on_new_f(rd_kafka_t *, const rd_kafka_conf_t *, void *, char *, size_t);
typedef int on_destroy_f(rd_kafka_t *, void *);
typedef int on_acknowledgement_f(rd_kafka_t *, rd_kafka_message_t *, void *);

/* X(result, name without rd_kafka_, arguments) */
#define RDKAFKA_FUNCTIONS(X)                                                                       \
    X(int, version, (void))                                                                        \
    X(int, conf_set, (rd_kafka_conf_t *, const char *, const char *, char *, size_t))              \
    X(int, conf_interceptor_add_on_new,                                                            \
      (rd_kafka_conf_t *, const char *, on_new_f *, void *))                                       \
    X(int, interceptor_add_on_destroy, (rd_kafka_t *, const char *, on_destroy_f *, void *))       \
    X(int, interceptor_add_on_acknowledgement,                                                     \
      (rd_kafka_t *, const char *, on_acknowledgement_f *, void *))                                \
    X(void, queue_destroy, (rd_kafka_queue_t *))                                                   \
    X(rd_kafka_queue_t *, queue_get_partition, (rd_kafka_t *, const char *, int32_t))              \
    X(void, queue_forward, (rd_kafka_queue_t *, rd_kafka_queue_t *))                               \
    X(rd_kafka_event_t *, queue_poll, (rd_kafka_queue_t *, int))                                   \
    X(int, event_type, (const rd_kafka_event_t *))                                                 \
    X(int, event_error, (rd_kafka_event_t *))                                                      \
    X(const char *, event_error_string, (rd_kafka_event_t *))                                      \
    X(const rd_kafka_message_t *, event_message_next, (rd_kafka_event_t *))                        \
    X(rd_kafka_topic_partition_t *, event_topic_partition, (rd_kafka_event_t *))                   \
    X(void, topic_partition_destroy, (rd_kafka_topic_partition_t *))                               \
    X(void, event_destroy, (rd_kafka_event_t *))                                                   \
    X(int64_t, message_timestamp, (const rd_kafka_message_t *, int *))                             \
    X(int, message_headers, (const rd_kafka_message_t *, rd_kafka_headers_t **))                   \
    X(size_t, header_cnt, (const rd_kafka_headers_t *))                                            \
    X(int, header_get_all,                                                                         \
      (const rd_kafka_headers_t *, size_t, const char **, const void **, size_t *))                \
    X(rd_kafka_headers_t *, headers_new, (size_t))                                                 \
    X(void, headers_destroy, (rd_kafka_headers_t *))                                               \
    X(int, header_add, (rd_kafka_headers_t *, const char *, ssize_t, const void *, ssize_t))       \
    X(rd_kafka_topic_t *, topic_new, (rd_kafka_t *, const char *, void *))                         \
    X(void, topic_destroy, (rd_kafka_topic_t *))                                                   \
    X(rd_kafka_error_t *, produceva, (rd_kafka_t *, const rd_kafka_vu_t *, size_t))                \
    X(int, error_code, (const rd_kafka_error_t *))                                                 \
    X(void, error_destroy, (rd_kafka_error_t *))

#define RDKAFKA_FIELD(result, name, arguments) result(*name) arguments;
struct rdkafka {
    RDKAFKA_FUNCTIONS(RDKAFKA_FIELD)
};
#undef RDKAFKA_FIELD

extern struct rdkafka rdk; /* the functions, all NULL until kb_bind() */

#endif
