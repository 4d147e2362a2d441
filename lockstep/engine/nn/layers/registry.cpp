#include "lockstep/engine/nn/layers/registry.h"

namespace lockstep::layers {

std::vector<LayerInfo> all() {
  return {image_input_info(),
          feature_input_info(),
          sequence_input_info(),
          image3d_input_info(),
          convolution1d_info(),
          convolution2d_info(),
          convolution3d_info(),
          transposed_convolution2d_info(),
          fully_connected_info(),
          batch_normalization_info(),
          layer_normalization_info(),
          instance_normalization_info(),
          group_normalization_info(),
          relu_info(),
          clipped_relu_info(),
          leaky_relu_info(),
          elu_info(),
          gelu_info(),
          swish_info(),
          tanh_info(),
          sigmoid_info(),
          softplus_info(),
          softmax_info(),
          max_pooling1d_info(),
          max_pooling2d_info(),
          max_pooling3d_info(),
          average_pooling1d_info(),
          average_pooling2d_info(),
          average_pooling3d_info(),
          global_average_pooling1d_info(),
          global_average_pooling2d_info(),
          global_average_pooling3d_info(),
          dropout_info(),
          flatten_info(),
          reshape_info(),
          addition_info(),
          multiplication_info(),
          concatenation_info()};
}

}  // namespace lockstep::layers
