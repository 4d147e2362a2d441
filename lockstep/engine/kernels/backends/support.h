// Which kernels of a back end may be used: those that exist and have passed the device's self-test.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/numeric/dtype.h"
#include "lockstep/engine/kernels/backends/tables.h"
#include "lockstep/engine/kernels/backends/verdict.h"

namespace lockstep::kernels {

// Support of one entry of a Table.
struct KernelSupport {
  std::string_view name;  // of the entry, such as "convolution"
  bool present = false;
  bool passed = false;    // the self-test, with fp32
  bool optional = false;  // slower entries can replace it
  bool usable() const { return present && passed; }
};

// The support of all entries, in the order of Table.
std::vector<KernelSupport> kernel_support(const Table& table, const Verdict& verdict);

// Why kernels may not compute with `type` ("tf32", "bf16", "f16"): the back end does not offer it,
// or a kernel that computes with it has not passed with it. "": they may.
std::string type_problem(const Table& table, std::string_view type, const Verdict& verdict);

// The table of a device with each unusable entry replaced by a function that throws Unsupported
// with what the self-test has seen, and a hint. Unusable optional entries are null.
Table guarded(const Table& table, const Verdict& verdict, Device device);

// What guarded() has refused under this name (a kernel or a type), with the devices: "on cuda:0:
// output 0 of ...". "": nothing. Thread-safe.
std::string refusal_of(std::string_view name);

}  // namespace lockstep::kernels
