/* Passes over Avro datums of any schema, and says which rows are exactly one: avro_walk.py calls it
 * through ctypes, and has the same rules in Python, which give the reason.
 *
 * Source: Apache Avro 1.12, "Binary Encoding". */
#include "avro.h"

/* What is done at a node; native/__init__.py has the same list. */
enum step {
    SKIP,   /* `size` bytes */
    INT,    /* a number of 32 bits */
    LONG,   /* a number of 64 bits */
    SIZED,  /* a number, and as many bytes */
    FLAG,   /* a byte, 0 or 1 */
    SYMBOL, /* a number below `size` */
    BRANCH, /* a number below `size`, and the child of that number */
    EACH,   /* all children in turn */
    ITEMS,  /* blocks of the child, which takes no bytes if `size` */
    NEXT    /* holds a child, and the holder of the child after it */
};

struct node {
    int32_t kind;
    int32_t size;
    int32_t child; /* the first holder of BRANCH, EACH and ITEMS; of NEXT, the child itself */
    int32_t next;  /* -1: none */
};

static int pass(struct cursor *cursor, const struct node *nodes, int32_t at, int64_t *left);

static int pass_bytes(struct cursor *cursor, int64_t size) {
    if (size < 0 || cursor->end - cursor->at < size)
        return 0;
    cursor->at += size;
    return 1;
}

/* An item takes a byte at least, unless it takes none; so the bytes bound the loop. */
static int pass_items(struct cursor *cursor, const struct node *nodes, const struct node *list,
                      int64_t *left) {
    int32_t item = nodes[list->child].child;
    for (;;) {
        int64_t count, bytes;
        if (!take_long(cursor, &count))
            return 0;
        if (count == INT64_MIN || (count < 0 && !take_long(cursor, &bytes)))
            return 0;
        if (count == 0)
            return 1;
        if (count < 0)
            count = -count;
        if (list->size) {
            if (count > *left)
                return 0;
            *left -= count;
            continue;
        }
        for (; count; count--)
            if (!pass(cursor, nodes, item, left))
                return 0;
    }
}

static int pass(struct cursor *cursor, const struct node *nodes, int32_t at, int64_t *left) {
    const struct node *node = &nodes[at];
    int64_t number = 0;
    int32_t child = node->child;
    switch ((enum step)node->kind) {
    case SKIP:
        return pass_bytes(cursor, node->size);
    case INT:
        return take_int(cursor, &number);
    case LONG:
        return take_long(cursor, &number);
    case SIZED:
        return take_long(cursor, &number) && pass_bytes(cursor, number);
    case FLAG:
        return cursor->at < cursor->end && *cursor->at++ <= 1;
    case SYMBOL:
        return take_int(cursor, &number) && number >= 0 && number < node->size;
    case BRANCH:
        if (!take_int(cursor, &number) || number < 0 || number >= node->size)
            return 0;
        for (; number; number--)
            child = nodes[child].next;
        return pass(cursor, nodes, nodes[child].child, left);
    case EACH:
        for (; child >= 0; child = nodes[child].next)
            if (!pass(cursor, nodes, nodes[child].child, left))
                return 0;
        return 1;
    case ITEMS:
        return pass_items(cursor, nodes, node, left);
    case NEXT:
        break;
    }
    return 0;
}

/* Row r is data[ends[r]] to data[ends[r + 1]]; is_wrong[r] becomes whether it is something else than
 * one datum, or has more than `most` items that take no bytes.  `root` is the schema's node. */
KB_API void kb_avro_walk(const uint8_t *data, const int32_t *ends, int64_t rows,
                         const struct node *nodes, int32_t root, int64_t most, uint8_t *is_wrong) {
    for (int64_t row = 0; row < rows; row++) {
        struct cursor cursor = {data + ends[row], data + ends[row + 1]};
        int64_t left = most;
        is_wrong[row] = !(pass(&cursor, nodes, root, &left) && cursor.at == cursor.end);
    }
}
