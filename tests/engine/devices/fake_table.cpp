// The kernels of a stand-in device: those of the CPU, as work of its streams.
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/engine/kernels/backends/kernel_info.h"
#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/engine/kernels/images/augment_images.h"
#include "lockstep/engine/kernels/loading.h"
#include "lockstep/engine/kernels/shapes/copy_chunks.h"
#include "lockstep/engine/kernels/solvers/parameter_digests.h"
#include "lockstep/engine/kernels/solvers/solver.h"
#include "tests/engine/devices/fake_memory.h"

namespace lockstep::devicetest {
namespace {

kernels::Pass on_stream(kernels::Pass pass, bool needs_step) {
  pass.bind = [inner = std::move(pass.bind), needs_step](const kernels::PassMemory& where) {
    auto* const stream = static_cast<FakeStream*>(where.stream);
    if (!stream) throw InternalError("[fake] a pass was bound without a stream");
    if (needs_step && !where.device_step) {
      throw InternalError("[fake] a pass was bound without a step on the device");
    }
    kernels::BoundPass body;
    stream->memory->inside([&] {
      body = inner({.reads = where.reads,
                    .writes = where.writes,
                    .scratch = where.scratch,
                    .device_step = where.device_step});
    });
    return kernels::BoundPass([stream, body, step = where.device_step](const RandomContext&) {
      stream->add(Kind::kernel, [body, step] { body(step ? *step : RandomContext{}); });
    });
  };
  return pass;
}

FakeStream& of(void* stream) {
  if (!stream) throw InternalError("[fake] an update was added to no stream");
  return *static_cast<FakeStream*>(stream);
}

// The kernels behind all devices.
const kernels::Table* behind = nullptr;

const kernels::Table& kernels_behind() { return behind ? *behind : kernels::table_for({}); }

// The function behind an entry, as work of a stream. Its last parameter is the stream.
template <auto entry, class Result, class... Parameters>
Result on_device(Parameters... parameters) {
  const auto function = kernels_behind().*entry;
  if constexpr (std::is_same_v<Result, kernels::Kernel>) {
    kernels::Kernel made = function(parameters...);
    made.forward = on_stream(std::move(made.forward), true);
    for (auto& pass : made.backward) pass = on_stream(std::move(pass), true);
    return made;
  } else if constexpr (std::is_same_v<Result, kernels::Pass>) {
    return on_stream(function(parameters...), false);
  } else {
    std::tuple<std::decay_t<Parameters>...> copies(parameters...);
    void*& last = std::get<sizeof...(Parameters) - 1>(copies);
    FakeStream& stream = of(std::exchange(last, nullptr));
    stream.add(Kind::kernel, [=] { std::apply(function, copies); });
  }
}

// Replaces the CPU's function; leaves null where the CPU has none.
template <auto entry, class Result, class... Parameters>
void put_on_device(Result (*&function)(Parameters...)) {
  if (function) function = on_device<entry, Result, Parameters...>;
}

// A block of a parameter.
struct Part {
  float *w, *first, *second;
  const float* gradient_sum;
  size_t count;
};

template <class Update, class Body>
void update_blocks(const kernels::Updates<Update>& all, void* stream, Body body) {
  of(stream).add(Kind::kernel, [=] {
    for (int64_t i = 0; i < all.block_count; ++i) {
      const kernels::UpdateBlock block = all.blocks[i];
      const kernels::ParameterArrays& a = all.arrays[block.parameter];
      const Part part{a.w + block.first, a.first + block.first,
                      a.second ? a.second + block.first : nullptr, a.gradient_sum + block.first,
                      static_cast<size_t>(std::min(kernels::kUpdateBlock, a.count - block.first))};
      body(kernels::table_for({}), part, all.updates[block.parameter]);
    }
  });
}

kernels::Table make_table() {
  kernels::Table t = kernels_behind();
  t.tf32 = true;
  kernels::for_each_kernel([&]<kernels::KernelId, auto entry>() {
    put_on_device<entry>(t.*entry);
  });
  if (t.sgdm_of_all) return t;
  // The CPU has no kernels for all parameters at once.
  t.sgdm_of_all = [](const kernels::Updates<kernels::SgdmUpdate>& all, void* stream) {
    update_blocks(all, stream, [](const kernels::Table& cpu, const Part& p, const auto& u) {
      cpu.sgdm(p.w, p.first, p.gradient_sum, p.count, u, nullptr);
    });
  };
  t.adam_of_all = [](const kernels::Updates<kernels::AdamUpdate>& all, void* stream) {
    update_blocks(all, stream, [](const kernels::Table& cpu, const Part& p, const auto& u) {
      cpu.adam(p.w, p.first, p.second, p.gradient_sum, p.count, u, nullptr);
    });
  };
  t.rmsprop_of_all = [](const kernels::Updates<kernels::RmspropUpdate>& all, void* stream) {
    update_blocks(all, stream, [](const kernels::Table& cpu, const Part& p, const auto& u) {
      cpu.rmsprop(p.w, p.first, p.gradient_sum, p.count, u, nullptr);
    });
  };
  return t;
}

}  // namespace

// Made again for each device, since the kernels behind it may be others. Tables are never
// destroyed, because devices refer to them.
const kernels::Table& fake_table(const kernels::Table* kernels) {
  static std::map<const kernels::Table*, std::unique_ptr<kernels::Table>> tables;
  behind = kernels;
  auto& made = tables[kernels];
  if (!made || kernels) made = std::make_unique<kernels::Table>(make_table());
  return *made;
}

}  // namespace lockstep::devicetest
