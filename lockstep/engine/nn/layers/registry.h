// The list of layers for layer_registry(). A new layer is a function <name>_info() that returns
// its LayerInfo, in the file of its family, and a line here.
#pragma once

#include "lockstep/engine/nn/layer.h"

// The names, in the order of documentation.
#define LOCKSTEP_LAYERS(LAYER)      \
  LAYER(image_input)                \
  LAYER(feature_input)              \
  LAYER(sequence_input)             \
  LAYER(token_input)                \
  LAYER(image3d_input)              \
  LAYER(convolution1d)              \
  LAYER(convolution2d)              \
  LAYER(convolution3d)              \
  LAYER(transposed_convolution2d)   \
  LAYER(fully_connected)            \
  LAYER(batch_normalization)        \
  LAYER(layer_normalization)        \
  LAYER(instance_normalization)     \
  LAYER(group_normalization)        \
  LAYER(channel_normalization)      \
  LAYER(layer_scale)                \
  LAYER(relu)                       \
  LAYER(clipped_relu)               \
  LAYER(leaky_relu)                 \
  LAYER(elu)                        \
  LAYER(gelu)                       \
  LAYER(swish)                      \
  LAYER(hard_swish)                 \
  LAYER(hard_sigmoid)               \
  LAYER(tanh)                       \
  LAYER(sigmoid)                    \
  LAYER(softplus)                   \
  LAYER(softmax)                    \
  LAYER(max_pooling1d)              \
  LAYER(max_pooling2d)              \
  LAYER(max_pooling3d)              \
  LAYER(average_pooling1d)          \
  LAYER(average_pooling2d)          \
  LAYER(average_pooling3d)          \
  LAYER(global_average_pooling1d)   \
  LAYER(global_average_pooling2d)   \
  LAYER(global_average_pooling3d)   \
  LAYER(adaptive_average_pooling2d) \
  LAYER(upsampling2d)               \
  LAYER(squeeze_excitation)         \
  LAYER(lstm)                       \
  LAYER(gru)                        \
  LAYER(rnn)                        \
  LAYER(embedding)                  \
  LAYER(category_embedding)         \
  LAYER(position_embedding)         \
  LAYER(self_attention)             \
  LAYER(transformer_block)          \
  LAYER(rms_normalization)          \
  LAYER(last_step)                  \
  LAYER(dropout)                    \
  LAYER(stochastic_depth)           \
  LAYER(flatten)                    \
  LAYER(reshape)                    \
  LAYER(pixels_to_steps)            \
  LAYER(function)                   \
  LAYER(addition)                   \
  LAYER(multiplication)             \
  LAYER(denormalization)            \
  LAYER(outputs)                    \
  LAYER(concatenation)

namespace lockstep::layers {

std::vector<LayerInfo> all();

#define LOCKSTEP_DECLARE_LAYER(name) LayerInfo name##_info();
LOCKSTEP_LAYERS(LOCKSTEP_DECLARE_LAYER)
#undef LOCKSTEP_DECLARE_LAYER

}  // namespace lockstep::layers
