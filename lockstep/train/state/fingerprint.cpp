#include "lockstep/train/state/fingerprint.h"

#include <fmt/format.h>
#include <gnu/libc-version.h>
#include <unistd.h>

#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/os/build_id.h"
#include "lockstep/base/os/processor.h"
#include "lockstep/base/os/variable.h"
#include "lockstep/data/images/image.h"
#include "lockstep/engine/kernels/interface/library_versions.h"
#include "lockstep/engine/kernels/loading.h"

extern char** environ;

namespace lockstep {
namespace {

std::string cache_sizes() {
  const auto size = [](int name) { return std::max(0L, sysconf(name)) >> 10; };
  return fmt::format("L1 {} KiB, L2 {} KiB, L3 {} KiB", size(_SC_LEVEL1_DCACHE_SIZE),
                     size(_SC_LEVEL2_CACHE_SIZE), size(_SC_LEVEL3_CACHE_SIZE));
}

// By these the C library chooses its variant of exp(), log(), tanh() and others, whose last bits
// differ.
std::string variant_of_functions() {
  const bool avx2 = __builtin_cpu_supports("avx2") != 0;
  if (avx2 && __builtin_cpu_supports("fma")) return "FMA";
  if (__builtin_cpu_supports("fma4")) return "FMA4";
  return __builtin_cpu_supports("avx") ? "AVX" : "baseline";
}

}  // namespace

const std::vector<FingerprintEntry>& numerics_fingerprint() {
  static const std::vector<FingerprintEntry> entries = [] {
    std::vector<FingerprintEntry> all{{"processor vendor", processor_vendor()},
                                      {"processor", processor_model()},
                                      {"caches", cache_sizes()}};
    for (const auto& [name, version] : kernels::library_versions()) all.push_back({name, version});
    all.push_back({"C library", gnu_get_libc_version()});
    all.push_back({"functions of the C library", variant_of_functions()});
    all.push_back({"image libraries", image_library_versions()});
    all.push_back({"build", build_id_of(reinterpret_cast<const void*>(&refuse_stray_environment))});
    return all;
  }();
  return entries;
}

std::vector<FingerprintEntry> numerics_fingerprint(Device device) {
  std::vector<FingerprintEntry> entries = numerics_fingerprint();
  if (device == Device{}) return entries;
  for (const auto& info : kernels::list_devices()) {
    if (info.device == device) entries.push_back({"GPU", info.name});
  }
  for (const auto& [name, version] : kernels::backend_versions()) {
    entries.push_back({name, version});
  }
  // Kernels that have not passed give way to others, with other bits.
  if (const auto verdict = kernels::known_verdict(device)) {
    entries.push_back({"GPU self-test", verdict->for_fingerprint()});
  }
  return entries;
}

std::string fingerprint_difference(const std::vector<FingerprintEntry>& here,
                                   const std::vector<FingerprintEntry>& there) {
  std::string text;
  const auto differ = [&](const std::string& name, const std::string& a, const std::string& b) {
    text += fmt::format("{}{}: {} here, {} there", text.empty() ? "" : "; ", name, a, b);
  };
  const auto find = [](const std::vector<FingerprintEntry>& all, const std::string& name) {
    for (const auto& e : all) {
      if (e.name == name) return e.value;
    }
    return std::string("unknown");
  };
  for (const auto& e : here) {
    const std::string other = find(there, e.name);
    if (other != e.value) differ(e.name, e.value, other);
  }
  for (const auto& e : there) {
    if (find(here, e.name) == "unknown" && e.value != "unknown") differ(e.name, "unknown", e.value);
  }
  return text;
}

void refuse_stray_environment() {
  static constexpr const char* kStray[] = {"ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE",
                                           "ONEDNN_MAX_CPU_ISA",         "DNNL_MAX_CPU_ISA",
                                           "ONEDNN_CPU_ISA_HINTS",       "DNNL_CPU_ISA_HINTS",
                                           "NVIDIA_TF32_OVERRIDE"};
  for (const char* name : kStray) {
    const char* value = std::getenv(name);
    if (!value || !*value) continue;
    throw InvalidArgument(std::string("[numerics] the environment sets ") + name + "=" + value +
                              ", which changes arithmetic",
                          std::string("unset ") + name);
  }
  const std::string limit = variable(kernels::kMaxCpuIsa);
  if (!limit.empty() && limit != "AVX2") {
    throw InvalidArgument(
        std::string("[numerics] the environment sets ") + kernels::kMaxCpuIsa + "=" + limit,
        std::string("set it to AVX2, or unset ") + kernels::kMaxCpuIsa);
  }
  // Tunables under glibc.cpu select other variants of exp() and log() in the C library.
  const char* tunables = std::getenv("GLIBC_TUNABLES");
  if (tunables && std::strstr(tunables, "glibc.cpu")) {
    throw InvalidArgument(std::string("[numerics] the environment sets GLIBC_TUNABLES=") +
                              tunables + ", which changes arithmetic",
                          "unset GLIBC_TUNABLES");
  }
}

}  // namespace lockstep
