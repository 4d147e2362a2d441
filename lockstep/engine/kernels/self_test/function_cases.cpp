// Entries of the table that are not ops: conversions, updates, sums, augmentation, digests. Their
// results are the CPU's, bit by bit.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "lockstep/engine/kernels/backends/kernel_info.h"
#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/engine/kernels/images/augment_images.h"
#include "lockstep/engine/kernels/self_test/case_list.h"
#include "lockstep/engine/kernels/shapes/copy_chunks.h"
#include "lockstep/engine/kernels/solvers/gradient_threshold.h"
#include "lockstep/engine/kernels/solvers/parameter_digests.h"
#include "lockstep/engine/kernels/solvers/solver.h"

namespace lockstep::kernels::selftest {
namespace {

const Table& cpu_kernels() { return table_for({}); }

Kernel forward_only(Pass pass) {
  Kernel kernel;
  kernel.forward = std::move(pass);
  return kernel;
}

// Conversions, sums of two arrays and zeros, in every layout and type.
void add_copies(std::vector<TestCase>& to, const Table& table) {
  for (const Shape& shape : std::vector<Shape>{{1},
                                               {7, 5},
                                               {2, 3, 5, 7},
                                               {3, 33, 9, 4},
                                               {1, 70, 65, 3},
                                               {4, 16, 6, 6},
                                               {2, 5, 3, 4, 7}}) {
    for (const std::string& type : types_of(table, "reorder")) {
      const DType narrow = numbers_of(type);
      for (int ways = 0; ways < (has_layouts(shape) ? 4 : 1); ++ways) {
        const bool from_layout = ways % 2 == 1, to_layout = ways / 2 == 1;
        const std::string what = shape.to_string() + (from_layout ? ", from" : "") +
                                 (to_layout ? ", to" : "") +
                                 (ways > 0 ? " the layout of convolutions" : "");
        for (const bool back : {false, true}) {
          if (back && narrow == DType::f32) continue;
          const DType source = back ? narrow : DType::f32, result = back ? DType::f32 : narrow;
          to.push_back({"reorder", type, what + (back ? ", to f32" : ""), false, [=](Bench& bench) {
                          const auto spec = [&](bool in_layout, DType dtype) {
                            return in_layout ? layout_of_convolutions(bench, shape, dtype)
                                             : plain_spec(shape, dtype);
                          };
                          KernelPair pair;
                          pair.device = forward_only(bench.table().reorder(
                              spec(from_layout, source), spec(to_layout, result)));
                          pair.cpu = forward_only(
                              cpu_kernels().reorder(plain_spec(shape), plain_spec(shape)));
                          pair.numbers = source;
                          return check_kernel(bench, pair);
                        }});
        }
      }
    }
    for (const bool in_layout : {false, true}) {
      if (in_layout && !has_layouts(shape)) continue;
      const std::string what = shape.to_string() + (in_layout ? ", layout of convolutions" : "");
      for (const std::string& type : types_of(table, "accumulate")) {
        to.push_back({"accumulate", type, what, false, [=](Bench& bench) {
                        const DType dtype = numbers_of(type);
                        KernelPair pair;
                        pair.device = forward_only(bench.table().accumulate(
                            in_layout ? layout_of_convolutions(bench, shape, dtype)
                                      : plain_spec(shape, dtype)));
                        pair.cpu = forward_only(cpu_kernels().accumulate(plain_spec(shape)));
                        pair.numbers = dtype;
                        return check_kernel(bench, pair);
                      }});
      }
      to.push_back(
          {"zero", "f32", what, false, [=](Bench& bench) {
             KernelPair pair;
             pair.device = forward_only(bench.table().zero(
                 in_layout ? layout_of_convolutions(bench, shape, DType::f32) : plain_spec(shape)));
             pair.cpu = forward_only(cpu_kernels().zero(plain_spec(shape)));
             return check_kernel(bench, pair);
           }});
    }
  }
}

// Random floats; with `squares` none is negative.
HostBytes floats(size_t count, uint64_t key, bool squares = false) {
  std::vector<float> x = normal_numbers(count, key);
  if (squares) {
    for (float& v : x) v = std::abs(v);
  }
  return bytes_of(x);
}

Array operand(const std::string& name, HostBytes first, HostBytes second) {
  return {.name = name,
          .role = Array::Role::operand,
          .bytes = first.size(),
          .first = std::move(first),
          .second = std::move(second)};
}

Array updated(const std::string& name, HostBytes first, HostBytes second) {
  Array a = operand(name, std::move(first), std::move(second));
  a.role = Array::Role::updated;
  return a;
}

Array result(const std::string& name, size_t bytes) {
  return {.name = name, .role = Array::Role::result, .bytes = bytes};
}

// Lets the CPU's function do the work on the first contents, and expects its results.
void expect_results_of(const std::function<void(const std::vector<void*>&)>& on_cpu, Work& work) {
  std::vector<HostBytes> memory;
  for (const Array& a : work.arrays) {
    memory.push_back(a.role == Array::Role::result ? HostBytes(a.bytes) : a.first);
  }
  std::vector<void*> addresses;
  for (HostBytes& bytes : memory) addresses.push_back(bytes.data());
  for (size_t i = 0; i < memory.size(); ++i) {
    if (work.arrays[i].make) memory[i] = work.arrays[i].make(addresses);
    addresses[i] = memory[i].data();
  }
  on_cpu(addresses);
  for (size_t i = 0; i < memory.size(); ++i) {
    Array& a = work.arrays[i];
    if (a.role != Array::Role::result && a.role != Array::Role::updated) continue;
    a.judge = [expected = std::move(memory[i])](const std::byte* got) -> std::string {
      const auto wrong = std::mismatch(expected.begin(), expected.end(), got);
      if (wrong.first == expected.end()) return "";
      return fmt::format("byte {} of {} is {:#04x} instead of {:#04x}",
                         wrong.first - expected.begin(), expected.size(),
                         static_cast<unsigned>(*wrong.second), static_cast<unsigned>(*wrong.first));
    };
  }
}

// A case whose function is called in the same way on the device and on the CPU:
// call(table, addresses of the arrays, stream).
using CallOfTable = std::function<void(const Table&, const std::vector<void*>&, void* stream)>;

void add_function(std::vector<TestCase>& to, const std::string& kernel, const std::string& what,
                  const std::function<std::vector<Array>()>& arrays, const CallOfTable& call,
                  const CallOfTable& on_cpu = {}, bool large = false) {
  to.push_back(
      {kernel, "f32", what, large, [=](Bench& bench) {
         Work work{.arrays = arrays(), .bind = {}};
         expect_results_of(
             [&](const std::vector<void*>& addresses) {
               (on_cpu ? on_cpu : call)(cpu_kernels(), addresses, nullptr);
             },
             work);
         work.bind = [&](const std::vector<void*>& addresses, void* stream, const RandomContext*) {
           return [&bench, &call, addresses, stream] { call(bench.table(), addresses, stream); };
         };
         return bench.check(work);
       }});
}

float* floats_at(void* address) { return static_cast<float*>(address); }

constexpr SgdmUpdate kSgdm{96, 0.05f, 0.9f, 1e-3f}, kNesterov{96, 0.05f, 0.9f, 1e-3f, 1};
constexpr AdamUpdate kAdam{96, 0.05f, 0.9, 0.999, 1.5f, 1e-8f, 1e-3f, 1e-4f};
constexpr RmspropUpdate kRmsprop{96, 0.05f, 0.9, 1e-8f, 1e-3f};

// Updates of one parameter: weights, one or two arrays of the solver, gradients.
std::vector<Array> arrays_of_update(size_t count, int kept, uint64_t key, bool first_is_square) {
  std::vector<Array> arrays{updated("weights", floats(count, key), floats(count, key + 1))};
  for (int k = 0; k < kept; ++k) {
    const bool square = kept == 2 ? k == 1 : first_is_square;
    const uint64_t own = key + 2 + 2 * static_cast<uint64_t>(k);
    arrays.push_back(updated("solver's array " + std::to_string(k), floats(count, own, square),
                             floats(count, own + 1, square)));
  }
  arrays.push_back(operand("gradients", floats(count, key + 6), floats(count, key + 7)));
  return arrays;
}

// Updates of several parameters in one call. `one`: the update of a parameter on the CPU.
template <class Update, auto entry>
void add_update_of_all(std::vector<TestCase>& to, const std::string& kernel, const Update& update,
                       int kept,
                       const std::function<void(const ParameterArrays&, const Update&)>& one) {
  static constexpr size_t sizes[] = {1500, 1, 1024, 700, 2048};
  const size_t each = 2 + static_cast<size_t>(kept);  // arrays of a parameter
  const auto arrays_at = [=](const std::vector<void*>& addresses) {
    std::vector<ParameterArrays> seen;
    for (size_t p = 0; p < std::size(sizes); ++p) {
      void* const* const own = &addresses[p * each];
      seen.push_back({floats_at(own[0]), floats_at(own[1]), kept == 2 ? floats_at(own[2]) : nullptr,
                      floats_at(own[each - 1]), static_cast<int64_t>(sizes[p])});
    }
    return seen;
  };
  std::vector<UpdateBlock> blocks;
  for (size_t p = 0; p < std::size(sizes); ++p) {
    for (int64_t i = 0; i < static_cast<int64_t>(sizes[p]); i += kUpdateBlock) {
      blocks.push_back({static_cast<int64_t>(p), i});
    }
  }
  std::vector<Update> first(std::size(sizes), update), second = first;
  first[2].rate = 0.005f;
  second[1].rate = 0.5f;
  const size_t array_count = std::size(sizes) * each;  // and the index of the first description
  const auto block_count = static_cast<int64_t>(blocks.size());
  add_function(
      to, kernel, "parameters of 1 to 2048 numbers",
      [=] {
        std::vector<Array> arrays;
        for (size_t p = 0; p < std::size(sizes); ++p) {
          for (Array& a : arrays_of_update(sizes[p], kept, 10 * (p + 1), kept == 1)) {
            a.name += " of parameter " + std::to_string(p);
            arrays.push_back(std::move(a));
          }
        }
        arrays.push_back({.name = "addresses",
                          .bytes = std::size(sizes) * sizeof(ParameterArrays),
                          .make = [=](const auto& at) { return bytes_of(arrays_at(at)); }});
        arrays.push_back(operand("updates", bytes_of(first), bytes_of(second)));
        arrays.push_back(operand("blocks", bytes_of(blocks), bytes_of(blocks)));
        return arrays;
      },
      [=](const Table& table, const std::vector<void*>& at, void* stream) {
        (table.*entry)({static_cast<const ParameterArrays*>(at[array_count]),
                        static_cast<const Update*>(at[array_count + 1]),
                        static_cast<const UpdateBlock*>(at[array_count + 2]), block_count},
                       stream);
      },
      [=](const Table&, const std::vector<void*>& at, void*) {
        const std::vector<ParameterArrays> all = arrays_at(at);
        for (size_t p = 0; p < all.size(); ++p) one(all[p], first[p]);
      });
}

void add_updates(std::vector<TestCase>& to) {
  for (const size_t count : {1u, 1000u, 1025u, 100003u}) {
    const std::string what = std::to_string(count) + " numbers";
    add_function(
        to, "sgdm", what, [=] { return arrays_of_update(count, 1, 1, false); },
        [=](const Table& t, const auto& at, void* stream) {
          t.sgdm(floats_at(at[0]), floats_at(at[1]), floats_at(at[2]), count, kSgdm, stream);
        });
    add_function(
        to, "sgdm", what + ", nesterov", [=] { return arrays_of_update(count, 1, 1, false); },
        [=](const Table& t, const auto& at, void* stream) {
          t.sgdm(floats_at(at[0]), floats_at(at[1]), floats_at(at[2]), count, kNesterov, stream);
        });
    add_function(
        to, "adam", what, [=] { return arrays_of_update(count, 2, 1, false); },
        [=](const Table& t, const auto& at, void* stream) {
          t.adam(floats_at(at[0]), floats_at(at[1]), floats_at(at[2]), floats_at(at[3]), count,
                 kAdam, stream);
        });
    add_function(
        to, "rmsprop", what, [=] { return arrays_of_update(count, 1, 1, true); },
        [=](const Table& t, const auto& at, void* stream) {
          t.rmsprop(floats_at(at[0]), floats_at(at[1]), floats_at(at[2]), count, kRmsprop, stream);
        });
  }
  add_update_of_all<SgdmUpdate, &Table::sgdm_of_all>(
      to, "sgdm_of_all", kSgdm, 1, [](const ParameterArrays& a, const SgdmUpdate& u) {
        cpu_kernels().sgdm(a.w, a.first, a.gradient_sum, static_cast<size_t>(a.count), u, nullptr);
      });
  add_update_of_all<AdamUpdate, &Table::adam_of_all>(
      to, "adam_of_all", kAdam, 2, [](const ParameterArrays& a, const AdamUpdate& u) {
        cpu_kernels().adam(a.w, a.first, a.second, a.gradient_sum, static_cast<size_t>(a.count), u,
                           nullptr);
      });
  add_update_of_all<RmspropUpdate, &Table::rmsprop_of_all>(
      to, "rmsprop_of_all", kRmsprop, 1, [](const ParameterArrays& a, const RmspropUpdate& u) {
        cpu_kernels().rmsprop(a.w, a.first, a.gradient_sum, static_cast<size_t>(a.count), u,
                              nullptr);
      });
}

void add_sums_and_limits(std::vector<TestCase>& to) {
  for (const size_t count : {1u, 1023u, 1025u, 40000u}) {
    const std::string what = std::to_string(count) + " numbers";
    add_function(
        to, "add", what,
        [=] {
          return std::vector<Array>{operand("a", floats(count, 1), floats(count, 2)),
                                    operand("b", floats(count, 3), floats(count, 4)),
                                    result("sum", count * sizeof(float))};
        },
        [=](const Table& t, const auto& at, void* stream) {
          t.add(floats_at(at[0]), floats_at(at[1]), floats_at(at[2]), count, stream);
        });
    add_function(
        to, "block_squares", what,
        [=] {
          return std::vector<Array>{operand("numbers", floats(count, 1), floats(count, 2)),
                                    result("sums", norm_blocks(count) * sizeof(double))};
        },
        [=](const Table& t, const auto& at, void* stream) {
          t.block_squares(floats_at(at[0]), count, static_cast<double*>(at[1]), stream);
        });
    const auto numbers = [=] {
      return std::vector<Array>{updated("numbers", floats(count, 1), floats(count, 2))};
    };
    add_function(to, "limit", what, numbers, [=](const Table& t, const auto& at, void* stream) {
      t.limit(floats_at(at[0]), count, 0.5f, stream);
    });
    add_function(to, "divide", what, numbers, [=](const Table& t, const auto& at, void* stream) {
      t.divide(floats_at(at[0]), count, 3, stream);
    });
  }
}

void add_augmentation(std::vector<TestCase>& to) {
  constexpr int64_t images = 40;
  for (const auto& [channels, height, width] :
       std::vector<std::array<int64_t, 3>>{{3, 32, 32}, {1, 5, 7}, {4, 1, 1}}) {
    std::vector<uint8_t> source(static_cast<size_t>(images * channels * height * width));
    for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<uint8_t>(i * 89 % 251);
    std::vector<ImageMap> maps;
    for (int64_t i = 0; i < images; ++i) {
      const int64_t one = ImageMap::kOne;
      maps.push_back({i % 2 ? -one : one, 0, 0, i % 3 ? one : -one, i % 5 - 2, i % 7 - 3});
      if (i % 4 == 0) maps.back().xy = one * (i - images / 2) / images;
      if (i % 11 == 0) maps.back().yy = one * (i - images / 2) / images;
    }
    std::vector<ImageMap> other(maps.rbegin(), maps.rend());
    add_function(
        to, "augment_images", fmt::format("{} images of {}x{}x{}", images, channels, height, width),
        [=] {
          return std::vector<Array>{operand("images", bytes_of(source), bytes_of(source)),
                                    operand("maps", bytes_of(maps), bytes_of(other)),
                                    result("results", source.size())};
        },
        [=, c = channels, h = height, w = width](const Table& t, const auto& at, void* stream) {
          t.augment_images({static_cast<const uint8_t*>(at[0]), static_cast<const ImageMap*>(at[1]),
                            static_cast<uint8_t*>(at[2]), images, planar(c, h, w)},
                           stream);
        });
  }
}

// Sums of leaves by the tree, in place in the first leaf, as trainings use them.
void add_sums_of_leaves(std::vector<TestCase>& to) {
  for (const auto& [count, leaves] :
       std::vector<std::pair<size_t, size_t>>{{1, 2}, {1025, 3}, {257, 8}, {40000, 5}, {300, 70}}) {
    add_function(
        to, "sum_leaves", fmt::format("{} leaves of {} numbers", leaves, count),
        [=, n = count, all = leaves] {
          std::vector<Array> arrays;
          for (size_t j = 0; j < all; ++j) {
            HostBytes first = floats(n, 2 * j + 1), second = floats(n, 2 * j + 2);
            const std::string name = "leaf " + std::to_string(j);
            arrays.push_back(j == 0 ? updated(name, first, second) : operand(name, first, second));
          }
          arrays.push_back({.name = "addresses",
                            .bytes = all * sizeof(float*),
                            .make = [all](const std::vector<void*>& at) {
                              return bytes_of(std::vector<void*>(
                                  at.begin(), at.begin() + static_cast<std::ptrdiff_t>(all)));
                            }});
          return arrays;
        },
        [=, n = count, all = leaves](const Table& t, const std::vector<void*>& at, void* stream) {
          t.sum_leaves(static_cast<const float* const*>(at[all]), static_cast<int64_t>(all),
                       floats_at(at[0]), n, stream);
        });
  }
}

// Copies in units of 16, 4 and 1 bytes, with adjacent bytes that stay.
void add_copies_of_chunks(std::vector<TestCase>& to) {
  constexpr size_t bytes = 70000;
  struct Chunk {
    size_t from, to, bytes;
  };
  static constexpr Chunk chunks[] = {
      {64, 128, kCopyChunk}, {20000, 30000, 1000}, {20004, 40000, 4004}, {3, 50001, 777}};
  add_function(
      to, "copy_chunks", "chunks of all alignments",
      [=] {
        const auto numbers = [](uint64_t key) { return floats(bytes / sizeof(float), key); };
        return std::vector<Array>{
            operand("source", numbers(1), numbers(2)),
            updated("result", numbers(3), numbers(4)),
            {.name = "chunks",
             .bytes = std::size(chunks) * sizeof(CopyChunk),
             .make = [](const std::vector<void*>& at) {
               std::vector<CopyChunk> list;
               for (const Chunk& p : chunks) {
                 list.push_back({static_cast<const std::byte*>(at[0]) + p.from,
                                 static_cast<std::byte*>(at[1]) + p.to,
                                 static_cast<int64_t>(p.bytes)});
               }
               return bytes_of(list);
             }}};
      },
      [](const Table& t, const std::vector<void*>& at, void* stream) {
        t.copy_chunks(static_cast<const CopyChunk*>(at[2]), std::size(chunks), stream);
      });
}

// Parameters around the limits of XXH3, with up to two arrays of the solver.
void add_digests(std::vector<TestCase>& to) {
  static constexpr size_t counts[] = {2, 30, 60, 62, 128, 256, 258, 1024, 4098, 50001};
  for (size_t kept = 0; kept < 3; ++kept) {
    const size_t each = 1 + kept, array_count = std::size(counts) * each;
    const auto arrays_at = [=](const std::vector<void*>& at) {
      std::vector<ParameterArrays> all;
      for (size_t p = 0; p < std::size(counts); ++p) {
        void* const* const own = &at[p * each];
        all.push_back({floats_at(own[0]), kept > 0 ? floats_at(own[1]) : nullptr,
                       kept > 1 ? floats_at(own[2]) : nullptr, nullptr,
                       static_cast<int64_t>(counts[p])});
      }
      return all;
    };
    std::vector<DigestedParameter> parameters;
    std::vector<UpdateBlock> blocks;
    int64_t results = 0;
    for (size_t p = 0; p < std::size(counts); ++p) {
      const auto bytes = static_cast<int64_t>(counts[p] * each * sizeof(float));
      parameters.push_back({static_cast<int64_t>(blocks.size()), results});
      for (int64_t b = 0; b < digested_blocks(bytes); ++b) {
        blocks.push_back({static_cast<int64_t>(p), b * xxh3::kBlock});
      }
      results += digest_result_bytes(bytes);
    }
    const auto block_count = static_cast<int64_t>(blocks.size());
    add_function(
        to, "parameter_digests", fmt::format("parameters with {} arrays of the solver", kept),
        [=] {
          std::vector<Array> arrays;
          for (size_t i = 0; i < array_count; ++i) {
            const size_t n = counts[i / each];
            arrays.push_back(
                operand("array " + std::to_string(i), floats(n, 2 * i + 1), floats(n, 2 * i + 2)));
          }
          arrays.push_back({.name = "addresses",
                            .bytes = std::size(counts) * sizeof(ParameterArrays),
                            .make = [=](const auto& at) { return bytes_of(arrays_at(at)); }});
          arrays.push_back(operand("parameters", bytes_of(parameters), bytes_of(parameters)));
          arrays.push_back(operand("blocks", bytes_of(blocks), bytes_of(blocks)));
          arrays.push_back({.name = "sums",
                            .role = Array::Role::scratch,
                            .bytes = 8 * sizeof(uint64_t) * blocks.size()});
          arrays.push_back(result("digests", static_cast<size_t>(results)));
          return arrays;
        },
        [=](const Table& t, const std::vector<void*>& at, void* stream) {
          t.parameter_digests(
              {static_cast<const ParameterArrays*>(at[array_count]),
               static_cast<const DigestedParameter*>(at[array_count + 1]), std::size(counts),
               static_cast<const UpdateBlock*>(at[array_count + 2]), block_count,
               static_cast<uint64_t*>(at[array_count + 3]),
               static_cast<std::byte*>(at[array_count + 4])},
              stream);
        });
  }
}

}  // namespace

std::vector<TestCase> function_cases(const Table& table) {
  std::vector<TestCase> cases;
  add_copies(cases, table);
  add_updates(cases);
  add_sums_and_limits(cases);
  add_augmentation(cases);
  add_sums_of_leaves(cases);
  add_copies_of_chunks(cases);
  add_digests(cases);
  return cases;
}

}  // namespace lockstep::kernels::selftest
