#include "lockstep/engine/kernels/determinism.h"

#include "lockstep/engine/kernels/process_setting.h"

namespace lockstep {
namespace {

kernels::ProcessSetting& setting() {
  static auto* instance =
      new kernels::ProcessSetting(true);  // back ends may ask until the very end
  return *instance;
}

}  // namespace

bool set_deterministic(bool on) { return setting().set(on); }

bool deterministic() { return setting().get(); }

void kernels::follow_determinism(bool (*set)(bool on)) { setting().follow(set); }

}  // namespace lockstep
