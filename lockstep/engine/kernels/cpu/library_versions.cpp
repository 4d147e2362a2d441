#include "lockstep/engine/kernels/interface/library_versions.h"

#include <hwy/targets.h>

#include "lockstep/base/numeric/clones.h"
#include "lockstep/engine/kernels/cpu/batch_lanes/layout.h"
#include "lockstep/engine/kernels/cpu/onednn.h"

namespace lockstep::kernels {
namespace {

std::string instruction_set() {
  // Most capable first. Each has the bits of all entries below it.
  const std::pair<dnnl_cpu_isa_t, const char*> known[] = {
      {dnnl_cpu_isa_avx512_core_amx, "AVX-512 with AMX"},
      {dnnl_cpu_isa_avx512_core_bf16, "AVX-512 with bf16"},
      {dnnl_cpu_isa_avx512_core_vnni, "AVX-512 with VNNI"},
      {dnnl_cpu_isa_avx512_core, "AVX-512"},
      {dnnl_cpu_isa_avx2_vnni, "AVX2 with VNNI"},
      {dnnl_cpu_isa_avx2, "AVX2"},
      {dnnl_cpu_isa_avx, "AVX"},
      {dnnl_cpu_isa_sse41, "SSE4.1"},
  };
  for (const auto& [bits, name] : known) {
    if (cpu::uses(bits)) return name;
  }
  return "baseline";
}

// What Highway chooses among the targets that this project's kernels are compiled for. It asks for
// more features than oneDNN does: for AVX2 also FMA, BMI2 and F16C.
std::string target_of_own_kernels() {
  const int64_t usable = hwy::SupportedTargets() & HWY_TARGETS;
  return hwy::TargetName(usable != 0 ? usable & -usable : HWY_STATIC_TARGET);
}

}  // namespace

std::vector<std::pair<std::string, std::string>> library_versions() {
  const dnnl_version_t* v = dnnl_version();
  return {{"oneDNN", std::to_string(v->major) + "." + std::to_string(v->minor) + "." +
                         std::to_string(v->patch) + " " + v->hash},
          {"instruction set", instruction_set()},
          {"target of own kernels", target_of_own_kernels()},
          {"clones of own loops", target_of_clones()}};
}

std::vector<std::pair<std::string, std::string>> chosen_kernels() {
  const std::string target = target_of_own_kernels();
  return {
      {"convolutions", cpu::lanes_are_chosen() ? "own, 16 images in the lanes of vectors, " + target
                                               : "oneDNN, " + instruction_set()},
      {"products of matrices", "own, " + target},
      {"activations", std::string("own, ") + target_of_fma_clones()},
      {"bf16", cpu::computes_bf16() ? "own, vdpbf16ps" : "not offered"}};
}

}  // namespace lockstep::kernels
