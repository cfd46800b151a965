/* How the library gets at a client of confluent-kafka's.
 *
 * Python code cannot be asked for the rd_kafka_t inside of a Consumer or Producer.  librdkafka's
 * documented way in is a plugin: the property plugin.library.paths names this very file,
 * librdkafka calls conf_init(), which adds an interceptor that sees each new client. */
#include "native.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct rdkafka rdk;

static const char NAME[] = "kbackup";

/* The client that was made last in this thread, until kb_client_take().  librdkafka calls on_new()
 * in the thread that makes the client. */
static _Thread_local struct client *newest;
/* Whether the client to be made next in this thread is a producer. */
static _Thread_local int is_producer;

void client_release(struct client *client) {
    if (atomic_fetch_sub(&client->owners, 1) == 1) {
        for (size_t at = 0; at < sizeof client->tallies / sizeof *client->tallies; at++)
            free(atomic_load(&client->tallies[at]));
        pthread_mutex_destroy(&client->lock);
        free(client);
    }
}

/* What is acknowledged in a partition; NULL where no room was made for it. */
static struct tally *tally_of(struct client *client, int32_t partition) {
    struct tally *chunk;
    if (partition < 0 || partition >= PARTITIONS_MOST)
        return NULL;
    chunk = atomic_load_explicit(&client->tallies[partition / TALLIES], memory_order_acquire);
    return chunk ? &chunk[partition % TALLIES] : NULL;
}

int client_tally(struct client *client, int32_t partition) {
    struct tally *chunk;
    if (partition < 0 || partition >= PARTITIONS_MOST || tally_of(client, partition))
        return 1;
    if (!(chunk = calloc(TALLIES, sizeof *chunk)))
        return 0;
    atomic_store_explicit(&client->tallies[partition / TALLIES], chunk, memory_order_release);
    return 1;
}

/* The thread of a partition's leader alone calls it for that partition, so nothing is lost between
 * a load and a store. */
static void count(struct tally *tally, int64_t offset) {
    long long records = atomic_load_explicit(&tally->records, memory_order_relaxed);
    if (offset < 0) {
        atomic_fetch_add(&tally->unknown, 1);
        return;
    }
    if (!records)
        atomic_store_explicit(&tally->first, offset, memory_order_relaxed);
    atomic_store_explicit(&tally->last, offset, memory_order_relaxed);
    atomic_store_explicit(&tally->records, records + 1, memory_order_release);
}

/* In a thread of librdkafka's, for each record in order. */
static int on_acknowledgement(rd_kafka_t *rk, rd_kafka_message_t *message, void *opaque) {
    struct client *client = opaque;
    long long number = atomic_fetch_add(&client->delivered, 1);
    struct tally *tally;
    (void)rk;
    if (message->err && atomic_fetch_add(&client->failed, 1) == 0) {
        atomic_store(&client->first_failed, number);
        atomic_store(&client->error, message->err);
    }
    if (!message->err && (tally = tally_of(client, message->partition)))
        count(tally, message->offset);
    return 0;
}

static int on_destroy(rd_kafka_t *rk, void *opaque) {
    struct client *client = opaque;
    (void)rk;
    atomic_store(&client->leaving, 1);
    pthread_mutex_lock(&client->lock);
    if (client->reader)
        reader_shut(client->reader);
    if (client->topic)
        rdk.topic_destroy(client->topic);
    client->topic = NULL;
    client->rk = NULL;
    pthread_mutex_unlock(&client->lock);
    client_release(client);
    return 0;
}

static int on_new(rd_kafka_t *rk, const rd_kafka_conf_t *conf, void *opaque, char *why,
                  size_t why_size) {
    struct client *client = calloc(1, sizeof *client);
    (void)conf, (void)opaque;
    if (!client || pthread_mutex_init(&client->lock, NULL)) {
        free(client);
        snprintf(why, why_size, "out of memory");
        return -1;
    }
    client->rk = rk;
    atomic_store(&client->first_failed, -1);
    atomic_store(&client->owners, 1);
    if (rdk.interceptor_add_on_destroy(rk, NAME, on_destroy, client)) {
        client_release(client);
        snprintf(why, why_size, "librdkafka takes no interceptor");
        return -1;
    }
    if (is_producer &&
        rdk.interceptor_add_on_acknowledgement(rk, NAME, on_acknowledgement, client)) {
        snprintf(why, why_size, "librdkafka takes no interceptor");
        return -1; /* on_destroy() may come: it has its own share */
    }
    if (newest)
        client_release(newest);
    atomic_fetch_add(&client->owners, 1);
    newest = client;
    return 0;
}

/* librdkafka calls it for each configuration that names this file as a plugin. */
KB_API int conf_init(rd_kafka_conf_t *conf, void **opaque, char *why, size_t why_size) {
    (void)opaque;
    if (!rdk.version) {
        snprintf(why, why_size, "kbackup's library was not bound to this librdkafka");
        return -1;
    }
    /* confluent-kafka keeps this property to itself.  Without it librdkafka would queue a report
     * for each record, that nobody waits for: on_acknowledgement() has seen it. */
    if (is_producer && rdk.conf_set(conf, "delivery.report.only.error", "true", why, why_size))
        return -1;
    return rdk.conf_interceptor_add_on_new(conf, NAME, on_new, NULL);
}

/* Finds librdkafka through the module that has loaded it: dlsym() looks into what a library
 * depends on, too.  Returns its version, or -1 and what is missing in *why. */
KB_API int kb_bind(const char *module, char *why, size_t why_size) {
    void *handle = dlopen(module, RTLD_NOW | RTLD_NOLOAD | RTLD_LOCAL);
    if (!handle) {
        snprintf(why, why_size, "%s is not loaded", module);
        return -1;
    }
#define LOOK_UP(result, name, arguments)                                                           \
    *(void **)&rdk.name = dlsym(handle, "rd_kafka_" #name);                                        \
    if (!rdk.name) {                                                                               \
        rdk.version = NULL;                                                                        \
        snprintf(why, why_size, "this librdkafka has no rd_kafka_" #name);                         \
        return -1;                                                                                 \
    }
    RDKAFKA_FUNCTIONS(LOOK_UP)
#undef LOOK_UP
    return rdk.version();
}

/* What tells the sources that this was built from. */
KB_API const char *kb_digest(void) { return KB_DIGEST; }

/* Before a client is made in this thread. */
KB_API void kb_expect(int producer) {
    is_producer = producer;
    if (newest)
        client_release(newest);
    newest = NULL;
}

/* The client that was made in this thread since kb_expect(), NULL if librdkafka made none.  The
 * caller owns a share of it. */
KB_API struct client *kb_client_take(void) {
    struct client *client = newest;
    newest = NULL;
    return client;
}

KB_API void kb_client_free(struct client *client) { client_release(client); }

/* Asks a thread that drains to come back at once, and every one that follows. */
KB_API void kb_client_leave(struct client *client) { atomic_store(&client->leaving, 1); }

/* out: deliveries, failures among them, number of the first one that failed or -1, its error. */
KB_API void kb_client_deliveries(struct client *client, int64_t *out) {
    out[0] = atomic_load(&client->delivered);
    out[1] = atomic_load(&client->failed);
    out[3] = atomic_load(&client->error);
    out[2] = out[3] ? atomic_load(&client->first_failed) : -1;
}

/* out: records that a partition has acknowledged since the last call, offsets of the first and of
 * the last of them, and how many more there are whose offset is not known.  Nothing may be on its
 * way meanwhile. */
KB_API void kb_client_written(struct client *client, int32_t partition, int64_t *out) {
    struct tally *tally = tally_of(client, partition);
    memset(out, 0, 4 * sizeof *out);
    if (!tally)
        return;
    out[0] = atomic_exchange(&tally->records, 0);
    out[1] = atomic_load(&tally->first);
    out[2] = atomic_load(&tally->last);
    out[3] = atomic_exchange(&tally->unknown, 0);
}
