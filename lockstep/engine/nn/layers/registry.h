// The list of layers behind layer_registry(). A new layer adds its line in registry.cpp.
#pragma once

#include "lockstep/engine/nn/layer.h"

namespace lockstep::layers {

std::vector<LayerInfo> all();

// One function for each layer in the folders below.
LayerInfo image_input_info();
LayerInfo feature_input_info();
LayerInfo sequence_input_info();
LayerInfo image3d_input_info();
LayerInfo convolution1d_info();
LayerInfo convolution2d_info();
LayerInfo convolution3d_info();
LayerInfo fully_connected_info();
LayerInfo batch_normalization_info();
LayerInfo layer_normalization_info();
LayerInfo instance_normalization_info();
LayerInfo group_normalization_info();
LayerInfo clipped_relu_info();
LayerInfo leaky_relu_info();
LayerInfo elu_info();
LayerInfo gelu_info();
LayerInfo swish_info();
LayerInfo tanh_info();
LayerInfo sigmoid_info();
LayerInfo softplus_info();
LayerInfo transposed_convolution2d_info();
LayerInfo relu_info();
LayerInfo softmax_info();
LayerInfo max_pooling1d_info();
LayerInfo max_pooling2d_info();
LayerInfo max_pooling3d_info();
LayerInfo average_pooling1d_info();
LayerInfo average_pooling2d_info();
LayerInfo average_pooling3d_info();
LayerInfo global_average_pooling1d_info();
LayerInfo global_average_pooling2d_info();
LayerInfo global_average_pooling3d_info();
LayerInfo dropout_info();
LayerInfo flatten_info();
LayerInfo reshape_info();
LayerInfo addition_info();
LayerInfo multiplication_info();
LayerInfo concatenation_info();

}  // namespace lockstep::layers
