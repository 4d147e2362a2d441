#include "lockstep/engine/kernels/tf32.h"

#include "lockstep/engine/kernels/process_setting.h"

namespace lockstep {
namespace {

kernels::ProcessSetting& setting() {
  static auto* instance = new kernels::ProcessSetting(false);  // as determinism.cpp's
  return *instance;
}

}  // namespace

bool set_tf32(bool on) { return setting().set(on); }

bool tf32() { return setting().get(); }

void kernels::follow_tf32(bool (*set)(bool on)) { setting().follow(set); }

}  // namespace lockstep
