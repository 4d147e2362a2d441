#include "lockstep/engine/kernels/interface/library_versions.h"

#include <dnnl.hpp>

namespace lockstep::kernels {
namespace {

std::string instruction_set() {
  const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
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
    if ((isa & static_cast<unsigned>(bits)) == static_cast<unsigned>(bits)) return name;
  }
  return "baseline";
}

}  // namespace

std::vector<std::pair<std::string, std::string>> library_versions() {
  const dnnl_version_t* v = dnnl_version();
  return {{"oneDNN", std::to_string(v->major) + "." + std::to_string(v->minor) + "." +
                         std::to_string(v->patch) + " " + v->hash},
          {"instruction set", instruction_set()}};
}

}  // namespace lockstep::kernels
