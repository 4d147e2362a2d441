#include "lockstep/engine/kernels/self_test/reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lockstep/base/numeric/bfloat16.h"
#include "lockstep/base/numeric/float16.h"
#include "lockstep/engine/device/allocator.h"

namespace lockstep::kernels::selftest {
namespace {

using Kind = Operand::Kind;

// From row-major floats to the operand's memory, and back.
HostBytes in_memory(const HostBytes& values, const TensorSpec& spec) {
  const HostBytes plain = narrowed(values, spec.dtype);
  if (plain.size() != spec.plain().bytes()) {
    throw InternalError("[self-test] an operand of " + spec.to_string() + " has " +
                        std::to_string(plain.size()) + " bytes");
  }
  if (!spec.layout) return plain;
  HostBytes memory(spec.bytes());
  spec.layout->from_row_major(plain.data(), memory.data());
  return memory;
}

HostBytes from_memory(const std::byte* memory, const TensorSpec& spec) {
  HostBytes plain(spec.plain().bytes());
  if (spec.layout) {
    spec.layout->to_row_major(memory, plain.data());
  } else {
    std::memcpy(plain.data(), memory, plain.size());
  }
  return widened(plain, spec.dtype);
}

std::string name_of(const Operand& o) {
  const std::string number = std::to_string(o.index);
  switch (o.kind) {
    case Kind::input:
      return "input " + number;
    case Kind::output:
      return "output " + number;
    case Kind::diff_output:
      return "output gradient " + number;
    case Kind::diff_input:
      return "gradient of input " + number;
    case Kind::workspace:
      break;
  }
  return "workspace";
}

// Values for an operand that are a function of its kind and number, and of `salt`.
HostBytes random_values(const Operand& o, DType numbers, uint64_t salt) {
  const auto count = static_cast<size_t>(o.spec.shape.elements());
  const uint64_t key =
      salt * 1000 + static_cast<uint64_t>(o.kind) * 10 + static_cast<uint64_t>(o.index);
  return bytes_of(rounded_to(normal_numbers(count, key), numbers));
}

HostBytes reversed(const HostBytes& floats) {
  std::vector<float> values = values_of<float>(floats);
  std::reverse(values.begin(), values.end());
  return bytes_of(values);
}

// Memory of the CPU's kernels needs alignment.
struct Aligned {
  explicit Aligned(const HostBytes& from) : memory(allocate(std::max<size_t>(from.size(), 64))) {
    if (!from.empty()) std::memcpy(memory.data(), from.data(), from.size());
  }
  Memory memory;
};

// Runs all passes of the CPU's kernel. Adds operands and results to `known`.
void run_on_cpu(const Kernel& kernel, DType numbers, Values& known) {
  HostBytes workspace;
  const auto run_pass = [&](const Pass& pass) {
    std::vector<Aligned> reads, writes;
    std::vector<void*> in, out;
    for (const Operand& o : pass.reads) {
      if (o.kind == Kind::workspace) {
        reads.emplace_back(workspace);
        continue;
      }
      const Key key{o.kind, o.index};
      if (!known.contains(key)) known[key] = random_values(o, numbers, 1);
      reads.emplace_back(in_memory(known.at(key), o.spec));
    }
    for (const Operand& o : pass.writes) {
      writes.emplace_back(HostBytes(o.spec.bytes(), std::byte{0xFF}));
    }
    for (const Aligned& a : reads) in.push_back(a.memory.data());
    for (const Aligned& a : writes) out.push_back(a.memory.data());
    const Aligned scratch(HostBytes(pass.scratch_bytes, std::byte{0xFF}));
    pass.bind({.reads = in, .writes = out, .scratch = scratch.memory.data()})(kFirstStep);
    for (size_t i = 0; i < pass.writes.size(); ++i) {
      const Operand& o = pass.writes[i];
      const auto* const data = writes[i].memory.as<std::byte>();
      if (o.kind == Kind::workspace) {
        workspace.assign(data, data + o.spec.bytes());
      } else {
        known[{o.kind, o.index}] = from_memory(data, o.spec);
      }
    }
  };
  run_pass(kernel.forward);
  for (const Pass& pass : kernel.backward) run_pass(pass);
}

bool holds_numbers(const TensorSpec& spec) {
  return spec.dtype == DType::f32 || is_narrow(spec.dtype);
}

// Checks a pass of the device. `workspace`: what the forward pass left for the backward passes.
std::string check_pass(Bench& bench, const Pass& pass, const KernelPair& pair, const Values& known,
                       HostBytes& workspace) {
  Work work;
  size_t reads = 0;
  for (const Operand& o : pass.reads) {
    Array a{.name = name_of(o), .role = Array::Role::operand, .bytes = o.spec.bytes()};
    if (o.kind == Kind::workspace) {
      if (workspace.size() != a.bytes) {
        return "the workspace of " + std::to_string(a.bytes) + " bytes is not written before";
      }
      a.first = a.second = workspace;
    } else {
      const auto found = known.find({o.kind, o.index});
      const HostBytes values =
          found == known.end() ? random_values(o, pair.numbers, 1) : found->second;
      a.first = in_memory(values, o.spec);
      const bool given = pair.given.contains({o.kind, o.index});
      // Other values would not have the meaning of given ones, such as labels.
      if (!holds_numbers(o.spec)) {
        a.second = a.first;
      } else {
        a.second = in_memory(given ? reversed(values) : random_values(o, pair.numbers, 2), o.spec);
      }
    }
    work.arrays.push_back(std::move(a));
    ++reads;
  }
  size_t workspace_index = SIZE_MAX;
  for (const Operand& o : pass.writes) {
    Array a{.name = name_of(o), .role = Array::Role::result, .bytes = o.spec.bytes()};
    const auto found = known.find({o.kind, o.index});
    if (o.kind == Kind::workspace) {
      a.role = Array::Role::scratch;
      workspace_index = work.arrays.size();
    } else if (found != known.end()) {
      a.judge = [spec = o.spec, expected = found->second, &pair](const std::byte* result) {
        const HostBytes plain = from_memory(result, spec);
        if (!holds_numbers(spec)) return std::string(plain == expected ? "" : "other values");
        HostBytes wanted = expected;
        // Equal values: those of the CPU's result, rounded once.
        if (pair.bounds.error == 0) wanted = widened(narrowed(expected, spec.dtype), spec.dtype);
        return outside(values_of<float>(plain), values_of<float>(wanted), pair.bounds);
      };
    }
    work.arrays.push_back(std::move(a));
  }
  work.arrays.push_back({.name = "scratch memory",
                         .role = Array::Role::scratch,
                         .bytes = std::max<size_t>(pass.scratch_bytes, 1)});
  const RandomContext host_step = bench.memory().records() ? RandomContext{} : kFirstStep;
  work.bind = [&pass, reads, host_step](const std::vector<void*>& arrays, void* stream,
                                        const RandomContext* step) {
    const std::span<void* const> all(arrays);
    BoundPass bound = pass.bind({.reads = all.first(reads),
                                 .writes = all.subspan(reads, pass.writes.size()),
                                 .scratch = arrays.back(),
                                 .stream = stream,
                                 .device_step = step});
    // Kernels of GPUs read the step in the device's memory, others the argument.
    return [bound = std::move(bound), host_step] { bound(host_step); };
  };
  std::vector<HostBytes> kept;
  std::string wrong = bench.check(work, &kept);
  if (wrong.empty() && workspace_index != SIZE_MAX) workspace = kept[workspace_index];
  return wrong;
}

}  // namespace

HostBytes narrowed(const HostBytes& floats, DType type) {
  if (!is_narrow(type)) return floats;
  std::vector<uint16_t> narrow;
  for (const float x : values_of<float>(floats)) {
    narrow.push_back(type == DType::bf16 ? to_bfloat16(x).bits : to_float16(x).bits);
  }
  return bytes_of(narrow);
}

HostBytes widened(const HostBytes& bytes, DType type) {
  if (!is_narrow(type)) return bytes;
  std::vector<float> floats;
  for (const uint16_t x : values_of<uint16_t>(bytes)) {
    floats.push_back(type == DType::bf16 ? to_float(BFloat16{x}) : to_float(Float16{x}));
  }
  return bytes_of(floats);
}

std::vector<float> normal_numbers(size_t count, uint64_t key) {
  const RandomStream stream({.seed = 11, .a = key});
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(stream.normal(i));
  return values;
}

std::vector<float> rounded_to(std::vector<float> values, DType type) {
  return values_of<float>(widened(narrowed(bytes_of(values), type), type));
}

std::string outside(std::span<const float> result, std::span<const float> expected,
                    const Bounds& bounds) {
  if (result.size() != expected.size()) return "another number of elements";
  double difference = 0, size = 0, along = 0, fourth = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const auto a = static_cast<double>(result[i]), e = static_cast<double>(expected[i]);
    if (std::isnan(a) && std::isnan(e)) continue;
    const bool wrong = bounds.error == 0
                           ? a != e
                           : std::isnan(a) || std::isnan(e) || (a != e && std::isinf(a - e));
    if (wrong) {
      return fmt::format("element {} of {} is {:.9g} instead of {:.9g}", i, expected.size(), a, e);
    }
    if (!std::isfinite(e)) continue;
    difference += (a - e) * (a - e);
    along += (a - e) * e;
    size += e * e;
    fourth += e * e * e * e;
  }
  if (bounds.error == 0) return "";
  const double error = size > 0 ? std::sqrt(difference / size) : difference > 0 ? INFINITY : 0;
  if (error > bounds.error) {
    return fmt::format("it differs from the CPU's by {:.2g} of its size, more than {:.2g}", error,
                       bounds.error);
  }
  // Of few numbers the mean says little. Large numbers count more, so fewer count.
  constexpr double enough = 256;
  const double count = fourth > 0 ? size * size / fourth : 0;
  if (bounds.scale == 0 || count < enough) return "";
  const double scale = std::abs(along / size), most = bounds.scale * (1 + 12 / std::sqrt(count));
  if (scale > most) {
    return fmt::format("it is {:.2g} of its size too {}, more than rounding explains ({:.2g})",
                       scale, along < 0 ? "small" : "large", most);
  }
  return "";
}

std::string check_kernel(Bench& bench, const KernelPair& pair) {
  Values known = pair.given;
  run_on_cpu(pair.cpu, pair.numbers, known);
  HostBytes workspace;
  std::string wrong = check_pass(bench, pair.device.forward, pair, known, workspace);
  for (size_t i = 0; wrong.empty() && i < pair.device.backward.size(); ++i) {
    wrong = check_pass(bench, pair.device.backward[i], pair, known, workspace);
  }
  return wrong;
}

}  // namespace lockstep::kernels::selftest
