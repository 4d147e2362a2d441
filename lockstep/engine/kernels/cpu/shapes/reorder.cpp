#include <algorithm>
#include <cstring>

#include "lockstep/engine/kernels/cpu/batch_lanes/layout.h"
#include "lockstep/engine/kernels/cpu/batch_lanes/weights.h"
#include "lockstep/engine/kernels/cpu/matrices/panels.h"
#include "lockstep/engine/kernels/cpu/onednn.h"
#include "lockstep/engine/kernels/cpu/rows.h"
#include "lockstep/engine/kernels/cpu/vectorized.h"

namespace lockstep::kernels::cpu {

Pass reorder(const TensorSpec& from, const TensorSpec& to);

namespace {

// Layouts of this project's kernels for weights.
bool is_own(const TensorSpec& spec) { return in_lanes_weights(spec) || in_panels(spec); }

// Converts row-major weights to such a layout, or back.
Pass reorder_weights(const TensorSpec& from, const TensorSpec& to) {
  return own_pass({input(0, from)}, {output(0, to)},
                  [from, to](void* const* r, void* const* w, const RandomContext&) {
                    if (from.row_major()) {
                      to.layout->from_row_major(r[0], w[0]);
                    } else {
                      from.layout->to_row_major(r[0], w[0]);
                    }
                  });
}

Pass reorder_by_way_of(const TensorSpec& way, const TensorSpec& from, const TensorSpec& to) {
  const Pass first = reorder(from, way), second = reorder(way, to);
  const size_t between = (way.bytes() + 63) / 64 * 64;
  Pass pass;
  pass.reads = first.reads;
  pass.writes = second.writes;
  pass.scratch_bytes = between + std::max(first.scratch_bytes, second.scratch_bytes);
  pass.bind = [=](const PassMemory& where) {
    void* const rows = where.scratch;
    void* const rest = static_cast<std::byte*>(where.scratch) + between;
    return BoundPass(
        [one = first.bind({where.reads, std::span(&rows, 1), rest}),
         two = second.bind({std::span(&rows, 1), where.writes, rest})](const RandomContext& step) {
          one(step);
          two(step);
        });
  };
  return pass;
}

// Passes over the same operands, one after the other.
Pass in_sequence(std::vector<Pass> passes) {
  Pass all;
  all.reads = passes[0].reads;
  all.writes = passes[0].writes;
  for (const Pass& pass : passes) {
    all.scratch_bytes = std::max(all.scratch_bytes, pass.scratch_bytes);
  }
  all.bind = [passes = std::move(passes)](const PassMemory& where) {
    std::vector<BoundPass> bound;
    for (const Pass& pass : passes) bound.push_back(pass.bind(where));
    return BoundPass([bound = std::move(bound)](const RandomContext& step) {
      for (const BoundPass& pass : bound) pass(step);
    });
  };
  return all;
}

Pass make_reorder(const TensorSpec& from, const TensorSpec& to) {
  if (is_own(from) || is_own(to)) {
    const TensorSpec plain{from.shape, DType::f32, nullptr};
    if (from == plain || to == plain) return reorder_weights(from, to);
    return reorder_by_way_of(plain, from, to);
  }
  // oneDNN 2.6 is four times as slow if both type and order change, so they change in two steps.
  if (from.dtype != to.dtype && from.row_major() != to.row_major() &&
      (in_lanes(from) || in_lanes(to))) {
    const DType there = in_lanes(to) ? from.dtype : to.dtype;
    return reorder_by_way_of(lanes_spec(from.shape, there), from, to);
  }
  const TensorSpec plain{from.shape, from.dtype, nullptr};
  if (from != plain && may_write_beyond(desc_of(from), desc_of(to))) {
    return reorder_by_way_of(plain, from, to);
  }
  SingleThread one;
  std::vector<Pass> passes;
  for (const auto& [part, target] : sound_reorders(desc_of(from), desc_of(to))) {
    const dnnl::reorder::primitive_desc pd(engine(), part, engine(), target, attributes());
    check_memory_for_code();
    passes.push_back(primitive_pass(dnnl::reorder(pd), scratch_of(pd),
                                    {{DNNL_ARG_FROM, input(0, from), part}},
                                    {{DNNL_ARG_TO, output(0, to), target}}));
  }
  return passes.size() == 1 ? passes[0] : in_sequence(std::move(passes));
}

}  // namespace

Pass reorder(const TensorSpec& from, const TensorSpec& to) {
  return translated("change of layout", [&] { return make_reorder(from, to); });
}

Pass accumulate(const TensorSpec& spec) {
  const size_t count = spec.bytes() / size_of(spec.dtype);
  return with_elements(spec.dtype, [&]<class T>(T*) {
    Pass pass = own_pass({input(0, spec), input(1, spec)}, {output(0, spec)},
                         [count](void* const* r, void* const* w, const RandomContext&) {
                           add(in<T>(r, 0), in<T>(r, 1), out<T>(w, 0), count);
                         });
    pass.in_place = {0, 1};
    return pass;
  });
}

Pass zero(const TensorSpec& spec) {
  Pass pass;
  pass.writes = {output(0, spec)};
  pass.bind = [bytes = spec.bytes()](const PassMemory& where) {
    void* const data = where.writes[0];
    return BoundPass([=](const RandomContext&) { std::memset(data, 0, bytes); });
  };
  return pass;
}

}  // namespace lockstep::kernels::cpu
