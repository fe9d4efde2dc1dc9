/* SPDX-License-Identifier: Apache-2.0
 *
 * A model inside the library: its layers, its tensors and where they lie.
 */
#ifndef TTI_NN_MODEL_H
#define TTI_NN_MODEL_H

#include <tutti/train.h>

enum { TTI_RESIDUALS_MAX = 8 };

/* Which of the model's width grains are here. */
struct tti_width {
    int grains;       /* of the model */
    int first, here;  /* of this rank */
    int ranks, rank;  /* that share them */
    tutti_comm *comm; /* of these ranks; NULL: there is one */
    bool sequence;    /* they share out rows too (sequence.h) */
};

struct tutti_model {
    tutti_error error;
    tutti_model_shape shape;
    tutti_layer **layers;
    tutti_tensor *tensors;
    int layer_count, layer_room;
    int tensor_count, tensor_room;
    int residuals[TTI_RESIDUALS_MAX], residual_count; /* open ones: their first layers */
    bool sealed, placed;
    bool has_loss;
    size_t elements;
    struct tti_width width;
    size_t
        value_elements; /* of the values: where some layers are elsewhere, tensors that theirs are here as copies too */
    size_t *rooms;      /* NULL: all layers are here. Else of each tensor what it takes, padding included */
    tutti_tensor *states; /* not trained; they lie in an allocation of their own */
    int state_count, state_room;
    size_t state_elements;
    float *state; /* NULL: not yet made (tti_model_make_state) */
    float *values, *gradients;
    bool owns_values, owns_gradients;
};

/* Of a layer that owns tensors: its share of an allocation, padding included. */
size_t tti_layer_offset(const tutti_model *model, const tutti_layer *layer);
size_t tti_layer_elements(const tutti_model *model, const tutti_layer *layer);

/* Gives the tensors their places in the allocations. */
void tti_model_lay_out(tutti_model *model);

/* The n-th of what a layer has: its tensors, then its states; NULL: it has fewer. */
tutti_tensor *tti_layer_part(const tutti_model *model, const tutti_layer *layer, int n);
/* Memory for the states, and their first values, unless there is some. */
tutti_status tti_model_make_state(tutti_model *model);
void tti_model_init_state(tutti_model *model);
/* True if a layer looks at the whole batch. */
bool tti_model_collects(const tutti_model *model);

/* As tutti_model_place, for rank `who->rank` of `who->ranks`. Without a comm a pass does not meet the others: what it computes is
 * of use to nobody, but takes as long. */
tutti_status tti_model_place(tutti_model *model, int width_grains, const struct tti_width *who);
/* How many width grains a sealed model has where nobody says it; true if so many go to so many ranks. */
int tti_model_usual_grains(const tutti_model *model);
bool tti_width_fits(int grains, int ranks);

/* First values of the elements from `from` on, as they lie in the allocations. */
void tti_tensor_init(const tutti_model *model, const tutti_tensor *tensor, uint64_t seed, size_t from, size_t count,
                     float *values);

/* Layers lo to hi - 1. */
struct tti_layers {
    int lo, hi;
};

/* Tensors of layers that are on other ranks have no place. */
#define TTI_ELSEWHERE SIZE_MAX

/* Only these layers are on this rank, ranges that rise: of the tensors theirs get a place, one after the other, and behind
 * them those that they share with layers elsewhere. After sealing, before binding. */
tutti_status tti_model_keep(tutti_model *model, const struct tti_layers *ranges, int count);
/* True if the tensor is this rank's to train: not elsewhere, nor a copy of one. */
bool tti_tensor_is_own(const tutti_model *model, int tensor);
/* What a tensor takes, padding included. */
size_t tti_tensor_room(const tutti_model *model, int tensor);
/* Where the gradients of a layer that shares a tensor begin among those of all such layers. */
size_t tti_layer_tied_offset(const tutti_model *model, const tutti_layer *layer);

/* Says what is wrong in the model, with the layer's name. */
tutti_status tti_model_refuse(tutti_model *model, const tutti_layer *layer, tutti_status status, const char *format,
                              ...) __attribute__((format(printf, 4, 5)));

#endif
