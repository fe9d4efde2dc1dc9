/* SPDX-License-Identifier: Apache-2.0
 *
 * A model inside the library: its layers, its tensors and their places.
 */
#ifndef TTI_NN_MODEL_H
#define TTI_NN_MODEL_H

#include <tutti/train.h>

enum { TTI_RESIDUALS_MAX = 8 };

/* The model's width grains that are on this rank. */
struct tti_width {
    int grains;       /* grains of the model */
    int first, here;  /* grains of this rank */
    int ranks, rank;  /* the ranks that share them, and this rank among these */
    tutti_comm *comm; /* the comm of these ranks; NULL: there is one rank */
    bool sequence;    /* they share out rows, too (sequence.h) */
};

struct tutti_model {
    tutti_error error;
    tutti_model_shape shape;
    tutti_layer **layers;
    tutti_tensor *tensors;
    int layer_count, layer_room;
    int tensor_count, tensor_room;
    int residuals[TTI_RESIDUALS_MAX], residual_count; /* open residuals: their first layers */
    bool sealed, placed;
    bool has_loss;
    size_t elements;
    struct tti_width width;
    /* elements of the values: if some layers are on other ranks, with copies of their tensors that layers here share */
    size_t value_elements;
    size_t *rooms;        /* NULL: all layers are here. Otherwise the room of each tensor, with padding */
    tutti_tensor *states; /* tensors that are not trained; they have an allocation of their own */
    int state_count, state_room;
    size_t state_elements;
    float *state; /* NULL: not made yet (tti_model_make_state) */
    float *values, *gradients;
    bool owns_values, owns_gradients;
};

/* For a layer that owns tensors: returns where its part of an allocation begins; the other how many elements it has,
 * with padding. */
size_t tti_layer_offset(const tutti_model *model, const tutti_layer *layer);
size_t tti_layer_elements(const tutti_model *model, const tutti_layer *layer);

/* Gives the tensors their places in the allocations. */
void tti_model_lay_out(tutti_model *model);

/* Returns the n-th tensor of a layer, counting its tensors first and then its states; NULL: it has fewer. */
tutti_tensor *tti_layer_part(const tutti_model *model, const tutti_layer *layer, int n);
/* Allocates memory for the states, and sets their initial values, unless that was done. */
tutti_status tti_model_make_state(tutti_model *model);
void tti_model_init_state(tutti_model *model);
/* Returns true if a layer depends on the whole batch. */
bool tti_model_collects(const tutti_model *model);

/* Does what tutti_model_place does, for rank `who->rank` of `who->ranks`. Without a comm a pass does not meet the other
 * ranks: its results are of no use, but it takes as long. */
tutti_status tti_model_place(tutti_model *model, int width_grains, const struct tti_width *who);
/* tti_model_usual_grains returns the default number of width grains of a sealed model; tti_width_fits returns true if
 * so many grains can be shared by so many ranks. */
int tti_model_usual_grains(const tutti_model *model);
bool tti_width_fits(int grains, int ranks);

/* Sets the initial values of the elements from `from` on, in the order of the allocations. */
void tti_tensor_init(const tutti_model *model, const tutti_tensor *tensor, uint64_t seed, size_t from, size_t count,
                     float *values);

/* Layers lo to hi - 1. */
struct tti_layers {
    int lo, hi;
};

/* The offset of tensors of layers that are on other ranks. */
#define TTI_ELSEWHERE SIZE_MAX

/* Keeps only these layers on this rank, in ascending ranges: their tensors get places one after the other, and behind
 * them those that they share with layers of other ranks. Called after sealing, before binding. */
tutti_status tti_model_keep(tutti_model *model, const struct tti_layers *ranges, int count);
/* Returns true if this rank trains the tensor: it is here, and not a copy. */
bool tti_tensor_is_own(const tutti_model *model, int tensor);
/* Returns the elements that a tensor takes, with padding. */
size_t tti_tensor_room(const tutti_model *model, int tensor);
/* Returns where the gradients of a layer that shares a tensor begin among those of all such layers. */
size_t tti_layer_tied_offset(const tutti_model *model, const tutti_layer *layer);

/* Sets the model's error, with the layer's name. */
tutti_status tti_model_refuse(tutti_model *model, const tutti_layer *layer, tutti_status status, const char *format,
                              ...) __attribute__((format(printf, 4, 5)));

#endif
