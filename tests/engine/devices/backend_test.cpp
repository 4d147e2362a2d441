// The conditions for using a GPU: libraries, drivers, code, and verified kernels.
#include "lockstep/engine/kernels/backends/backend.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <functional>

#include "lockstep/base/error.h"
#include "lockstep/engine/kernels/backends/support.h"
#include "lockstep/engine/kernels/devices.h"
#include "lockstep/engine/kernels/elementwise/addition.h"
#include "lockstep/engine/kernels/elementwise/relu.h"
#include "lockstep/engine/kernels/losses/softmax.h"
#include "lockstep/engine/kernels/solvers/solver.h"
#include "lockstep/engine/tensor/tensor.h"

namespace lockstep::kernels {
namespace {

TEST(Backend, ReportsDriverProblems) {
  EXPECT_EQ(driver_problem("x", 0, 13000), "there is no NVIDIA driver");
  EXPECT_EQ(driver_problem("x", 12080, 13000),
            "the NVIDIA driver is too old: it supports CUDA 12.8, but this library needs 13.0");
  EXPECT_EQ(driver_problem("no CUDA-capable device is detected", 13010, 13000),
            "the NVIDIA driver (CUDA 13.1) finds no GPU: no CUDA-capable device is detected");
}

TEST(Backend, KnowsWhichGpusItsCodeRunsOn) {
  const auto code = "80-real,90a-real,90-virtual";
  EXPECT_FALSE(has_code_for(code, 7, 5));
  EXPECT_TRUE(has_code_for(code, 8, 0));
  EXPECT_TRUE(has_code_for(code, 8, 9));
  EXPECT_TRUE(has_code_for(code, 9, 0));
  EXPECT_TRUE(has_code_for(code, 10, 0));  // from the intermediate code
  EXPECT_FALSE(has_code_for("90a-real", 10, 0));
  EXPECT_FALSE(has_code_for("90a", 12, 0));
  EXPECT_FALSE(has_code_for("86-real", 8, 0));
  EXPECT_TRUE(has_code_for("75", 12, 1));  // both kinds
  EXPECT_FALSE(has_code_for("", 9, 0));
}

TEST(Backend, ALibraryThatCannotServeIsRefusedWithTheReason) {
  const auto missing = open_backend("/nowhere/liblockstep_cuda.so");
  EXPECT_EQ(missing.backend, nullptr);
  EXPECT_EQ(missing.reason.text,
            "/nowhere/liblockstep_cuda.so cannot be loaded: cannot open shared object file: No "
            "such file or directory");
  const auto path =
      std::filesystem::temp_directory_path() / ("no_library_" + std::to_string(getpid()) + ".so");
  std::ofstream(path) << "no library";
  EXPECT_EQ(open_backend(path.string()).backend, nullptr);
  std::filesystem::remove(path);
  const auto other = open_backend("libz.so.1");
  EXPECT_EQ(other.backend, nullptr);
  EXPECT_EQ(other.reason.text,
            "libz.so.1 is not a Lockstep back end: it has no lockstep_cuda_backend");
}

#ifdef LOCKSTEP_BUILT_CUDA_LIBRARY
TEST(Backend, AMissingLibraryOfNvidiaIsNamed) {
  std::ifstream built(LOCKSTEP_BUILT_CUDA_LIBRARY, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(built), {}};
  const std::string there = "libcudnn.so.9", nowhere = "libcudnn.so.0";
  const size_t at = bytes.find(there);
  ASSERT_NE(at, std::string::npos);
  bytes.replace(at, there.size(), nowhere);
  const auto path = (std::filesystem::temp_directory_path() /
                     ("without_cudnn_" + std::to_string(getpid()) + ".so"))
                        .string();
  std::ofstream(path, std::ios::binary) << bytes;
  const auto library = open_backend(path);
  std::filesystem::remove(path);
  EXPECT_EQ(library.backend, nullptr);
  EXPECT_EQ(library.reason.text, path +
                                     " cannot be loaded: libcudnn.so.0: cannot open shared object "
                                     "file: No such file or directory");
  EXPECT_EQ(library.reason.hint,
            "install cuDNN, or add the folder of libcudnn.so.0 to LD_LIBRARY_PATH");
}

TEST(Backend, TheBuiltLibraryLoadsAndListsGpus) {
  const auto library = open_backend(LOCKSTEP_BUILT_CUDA_LIBRARY);
  ASSERT_NE(library.backend, nullptr) << library.reason.text;
  std::string reason;
  const auto devices = library.backend->devices(reason);
  EXPECT_EQ(devices.empty(), !reason.empty()) << reason;
  EXPECT_NE(library.backend->table->zero, nullptr);
  EXPECT_GE(library.backend->versions().size(), 3u);
  EXPECT_NE(library.backend->groups, nullptr);
  // The back end is also found without its name.
  EXPECT_EQ(std::filesystem::weakly_canonical(backend_path()),
            std::filesystem::weakly_canonical(LOCKSTEP_BUILT_CUDA_LIBRARY));
}
#endif

TEST(Devices, WithoutAGpuTheReasonIsReportedAndAutoIsTheCpu) {
  const Reason reason = no_devices_reason();
  if (reason.text.empty()) GTEST_SKIP() << "there is a GPU here";
  EXPECT_EQ(resolve_device("cpu"), Device{});
  EXPECT_EQ(resolve_device("auto"), Device{});
  EXPECT_EQ(resolve_device("auto", [](Device) { FAIL() << "tried a GPU"; }), Device{});
  for (const auto& call :
       {std::function<void()>([] { resolve_device("cuda"); }), std::function<void()>([] {
          table_for({Device::Kind::cuda, 0});
        }),
        std::function<void()>([] {
          Tensor::zeros({1}, DType::f32, {Device::Kind::cuda, 0});
        })}) {
    try {
      call();
      ADD_FAILURE() << "no error";
    } catch (const Unsupported& error) {
      EXPECT_EQ(error.what(), "[device] cuda:0 cannot be used: " + reason.text);
      EXPECT_EQ(error.hint(), reason.hint);
    }
  }
  EXPECT_THROW(resolve_device("gpu"), InvalidArgument);
}

constexpr std::array kRelu{cuda::Verified{"relu", DType::f32, "NVIDIA H200", "2027-01-31"}};

template <class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return std::string(error.what()) + " | " + error.hint();
  }
  return "no error";
}

TEST(Support, KernelsThatAreMissingOrHaveNeverRunAreRefused) {
  Table table = table_for({});
  table.softmax = nullptr;
  const ReluProblem relu{{Shape{3}, DType::f32, nullptr}};
  const AdditionProblem addition{};
  const SoftmaxProblem softmax{};
  const Table strict = guarded(table, kRelu, "");
  EXPECT_EQ(strict.relu, table.relu);
  EXPECT_NO_THROW(strict.relu(relu));
  EXPECT_EQ(message_of([&] { strict.addition(addition); }),
            "[kernels] addition has not been verified on a GPU | set "
            "LOCKSTEP_UNVERIFIED=addition,... (or all) to use it anyway");
  EXPECT_EQ(message_of([&] { strict.softmax(softmax); }),
            "[kernels] softmax has no CUDA kernel | use the CPU for it");
  EXPECT_EQ(message_of([&] { strict.add(nullptr, nullptr, nullptr, 0, nullptr); }),
            "[kernels] add has not been verified on a GPU | set LOCKSTEP_UNVERIFIED=add,... (or "
            "all) to use it anyway");
  EXPECT_EQ(guarded(table, kRelu, "pooling,addition").addition, table.addition);
  // An update for each parameter is an alternative.
  table.sgdm_of_all = [](const Updates<SgdmUpdate>&, void*) {};
  EXPECT_EQ(guarded(table, kRelu, "sgdm").sgdm_of_all, nullptr);
  EXPECT_EQ(guarded(table, kRelu, "sgdm").adam_of_all, nullptr);
  EXPECT_EQ(guarded(table, kRelu, "sgdm_of_all").sgdm_of_all, table.sgdm_of_all);
  EXPECT_NE(guarded(table, kRelu, "pooling,addition").dropout, table.dropout);
  const Table open = guarded(table, kRelu, "all");
  EXPECT_EQ(open.dropout, table.dropout);
  EXPECT_THROW(open.softmax(softmax), Unsupported);
  EXPECT_EQ(message_of([&] { guarded(table, kRelu, "adition"); }),
            "[kernels] LOCKSTEP_UNVERIFIED names `adition`, which is not a kernel | did you mean "
            "`addition`?");
}

TEST(Support, TheListOfWhatHasRunNamesKernelsOnly) {
  const auto support = kernel_support(table_for({}), cuda::kVerified, "");
  for (const auto& v : cuda::kVerified) {
    bool known = false;
    for (const auto& s : support) known |= s.name == v.name;
    EXPECT_TRUE(known || v.name == "nccl") << v.name;
  }
}

TEST(Support, NarrowTypesAreNamedOrHaveRunInAllThatComputeThem) {
  Table table = table_for({});
  table.bf16 = table.f16 = true;
  EXPECT_FALSE(guarded(table, kRelu, "").bf16);
  EXPECT_TRUE(guarded(table, kRelu, "relu,bf16").bf16);
  EXPECT_TRUE(guarded(table, kRelu, "all").bf16);
  EXPECT_FALSE(guarded(table, kRelu, "relu,bf16").f16);
  EXPECT_TRUE(guarded(table, kRelu, "f16").f16);
  std::vector<cuda::Verified> ran;
  for (const char* name :
       {"convolution", "transposed_convolution", "fully_connected", "batch_normalization",
        "pooling", "relu", "addition", "reshape", "concatenation", "reorder", "accumulate"}) {
    EXPECT_FALSE(guarded(table, ran, "").bf16) << name;
    ran.push_back({name, DType::bf16, "NVIDIA H200", "2027-01-31"});
  }
  const Table strict = guarded(table, ran, "");
  EXPECT_TRUE(strict.bf16);
  EXPECT_FALSE(strict.f16);
  EXPECT_NE(strict.relu, table.relu);  // verified for bf16 only
  table.bf16 = false;
  EXPECT_FALSE(guarded(table, ran, "all").bf16);
}

TEST(Support, NcclIsNamedOrHasRun) {
  EXPECT_FALSE(nccl_usable(kRelu, ""));
  EXPECT_FALSE(nccl_usable(kRelu, "relu,pooling"));
  EXPECT_TRUE(nccl_usable(kRelu, "relu,nccl"));
  EXPECT_TRUE(nccl_usable(kRelu, "all"));
  constexpr std::array ran{cuda::Verified{"nccl", DType::f32, "two NVIDIA H200", "2027-01-31"}};
  EXPECT_TRUE(nccl_usable(ran, ""));
  EXPECT_EQ(guarded(table_for({}), kRelu, "nccl").relu, table_for({}).relu);
}

}  // namespace
}  // namespace lockstep::kernels
