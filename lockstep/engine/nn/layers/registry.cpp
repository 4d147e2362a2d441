#include "lockstep/engine/nn/layers/registry.h"

namespace lockstep::layers {

std::vector<LayerInfo> all() {
#define LOCKSTEP_LAYER_INFO(name) name##_info(),
  return {LOCKSTEP_LAYERS(LOCKSTEP_LAYER_INFO)};
#undef LOCKSTEP_LAYER_INFO
}

}  // namespace lockstep::layers
