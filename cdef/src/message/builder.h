/* A message under construction. Knows names, dims and room; not where the bytes will go. */
#ifndef SHMB_BUILDER_H
#define SHMB_BUILDER_H

#include "base/error.h"
#include "message/message.h"

struct builder {
    struct field *fields;
    int64_t *dims; /* of all fields, one after another */
    uint32_t count, field_room;
    uint32_t dim_count, dim_room;
    uint8_t *body;
    size_t room, used;
    const char *room_option; /* of Host, that gives more room; NULL: there is none */
    /* what this message has matched so far: the usual case costs no copying of names */
    const struct layout *guess;
    char **names; /* owned by this message: those that the guess did not foresee */
    uint32_t name_count;
    void **spill; /* private memory for fields that had to go elsewhere because of an error */
    uint32_t spill_count;
    struct error *error;  /* the first one sticks, in its owner */
    shmb_tensor *tensors; /* of shmb_builder_tensors */
    uint32_t tensor_room;
};

/* Starts a message in body[room]; guess may be NULL. */
void shmb_builder_start(struct builder *b, uint8_t *body, size_t room, const struct layout *guess);
/* Adds a field; returns where its values go, or NULL when not even private memory can be had.
 * dims[field_dims]. *offsets (may be NULL) gets a list's offsets. On an error, which sticks in
 * b->error, the memory is private. */
void *shmb_builder_add(struct builder *b, const char *name, shmb_dtype dtype, shmb_kind kind,
                       int32_t rank, const int64_t *dims, int64_t **offsets);
/* The fields as they lie, valid until the next is added or the message cleared; NULL when there is
 * no memory. */
shmb_tensor *shmb_builder_tensors(struct builder *b);
/* Forgets the message, but for how much room it used; keeps the allocations. */
void shmb_builder_clear(struct builder *b);
void shmb_builder_free(struct builder *b);

#endif
