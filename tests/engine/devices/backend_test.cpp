// The conditions for using a GPU: libraries, drivers, code, and kernels that have passed its test.
#include "lockstep/engine/kernels/backends/backend.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "lockstep/base/error.h"
#include "lockstep/engine/kernels/backends/support.h"
#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/engine/kernels/backends/verdict_file.h"
#include "lockstep/engine/kernels/elementwise/addition.h"
#include "lockstep/engine/kernels/elementwise/relu.h"
#include "lockstep/engine/kernels/loading.h"
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

constexpr Device kGpu{Device::Kind::cuda, 0};

KernelVerdict passed(const char* kernel, const char* type = "f32") {
  return {.kernel = kernel, .type = type};
}

Verdict only_relu() {
  Verdict verdict;
  verdict.kernels = {passed("relu"),
                     {.kernel = "addition",
                      .type = "f32",
                      .state = TestState::failed,
                      .cases = 3,
                      .seen = "5x3: output 0: element 1 of 15 is 2 instead of 3"}};
  return verdict;
}

template <class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return std::string(error.what()) + " | " + error.hint();
  }
  return "no error";
}

TEST(Support, KernelsThatAreMissingOrHaveNotPassedAreRefused) {
  Table table = table_for({});
  table.softmax = nullptr;
  const ReluProblem relu{{Shape{3}, DType::f32, nullptr}};
  const AdditionProblem addition{};
  const SoftmaxProblem softmax{};
  table.sgdm_of_all = [](const Updates<SgdmUpdate>&, void*) {};
  const Table strict = guarded(table, only_relu(), kGpu);
  EXPECT_EQ(strict.relu, table.relu);
  EXPECT_NO_THROW(strict.relu(relu));
  const std::string hint = " | use another device; `lockstep verify-device --again` tests again";
  EXPECT_EQ(message_of([&] { strict.addition(addition); }),
            "[kernels] addition has not passed the self-test on cuda:0: 5x3: output 0: element 1 "
            "of 15 is 2 instead of 3" +
                hint);
  EXPECT_EQ(message_of([&] { strict.softmax(softmax); }),
            "[kernels] softmax has no CUDA kernel | use the CPU for it");
  EXPECT_EQ(message_of([&] { strict.add(nullptr, nullptr, nullptr, 0, nullptr); }),
            "[kernels] add has not passed the self-test on cuda:0: it was not tested" + hint);
  // An update for each parameter is an alternative.
  EXPECT_EQ(strict.sgdm_of_all, nullptr);
  Verdict more = only_relu();
  more.kernels.push_back(passed("sgdm_of_all"));
  EXPECT_EQ(guarded(table, more, kGpu).sgdm_of_all, table.sgdm_of_all);
  EXPECT_EQ(refusal_of("relu"), "");
  EXPECT_NE(more.digest(), only_relu().digest());
  EXPECT_EQ(only_relu().for_fingerprint().substr(0, 20), "without addition f32");
  EXPECT_EQ(only_relu().state(), TestState::failed);
}

TEST(Support, TypesAreUsedIfAllKernelsThatComputeThemHavePassed) {
  Table table = table_for({});
  table.bf16 = table.f16 = table.tf32 = true;
  Verdict verdict = only_relu();
  for (const char* name :
       {"convolution", "transposed_convolution", "fully_connected", "batch_normalization",
        "pooling", "relu", "addition", "reshape", "concatenation", "reorder", "accumulate"}) {
    EXPECT_FALSE(guarded(table, verdict, kGpu).bf16) << name;
    EXPECT_NE(refusal_of("bf16"), "") << name;
    verdict.kernels.push_back(passed(name, "bf16"));
  }
  Table strict = guarded(table, verdict, kGpu);
  EXPECT_TRUE(strict.bf16);
  EXPECT_FALSE(strict.f16);
  EXPECT_FALSE(strict.tf32);
  EXPECT_NE(strict.pooling, table.pooling);  // passed with bf16 only
  for (const char* name :
       {"convolution", "transposed_convolution", "fully_connected", "matrix_product"}) {
    verdict.kernels.push_back(passed(name, "tf32"));
  }
  EXPECT_TRUE(guarded(table, verdict, kGpu).tf32);
  table.bf16 = false;
  EXPECT_FALSE(guarded(table, verdict, kGpu).bf16);
}

class VerdictFiles : public ::testing::Test {
 protected:
  VerdictFiles()
      : folder_((std::filesystem::temp_directory_path() / ("verdicts_" + std::to_string(getpid())))
                    .string()) {
    std::filesystem::remove_all(folder_);
  }
  ~VerdictFiles() override { std::filesystem::remove_all(folder_); }
  std::string path() const { return verdict_path(folder_, key_); }
  std::string problem() const { return read_verdict(folder_, key_).problem; }

  const std::string folder_;
  const VerdictKey key_{"GPU-1", "a GPU", {{"driver", "1"}, {"cuDNN", "9"}}};
};

TEST_F(VerdictFiles, AreReadAsWrittenAndBelongToTheUserAlone) {
  EXPECT_FALSE(read_verdict(folder_, key_).verdict);
  EXPECT_EQ(problem(), "");
  write_verdict(folder_, key_, only_relu());
  const StoredVerdict stored = read_verdict(folder_, key_);
  ASSERT_TRUE(stored.verdict) << stored.problem;
  EXPECT_EQ(stored.verdict->digest(), only_relu().digest());
  EXPECT_EQ(stored.verdict->kernels[1].seen, only_relu().kernels[1].seen);
  using std::filesystem::perms;
  EXPECT_EQ(std::filesystem::status(path()).permissions(), perms::owner_read | perms::owner_write);
  // Another driver, library or GPU has another file.
  VerdictKey other = key_;
  other.versions[1].second = "10";
  EXPECT_FALSE(read_verdict(folder_, other).verdict);
  std::filesystem::copy_file(path(), verdict_path(folder_, other));
  std::filesystem::permissions(verdict_path(folder_, other), perms::owner_read);
  EXPECT_NE(read_verdict(folder_, other).problem.find("for another device"), std::string::npos);
}

TEST_F(VerdictFiles, OfOthersOrDamagedOnesAreIgnoredWithTheReason) {
  write_verdict(folder_, key_, only_relu());
  std::filesystem::permissions(path(), std::filesystem::perms(0644));
  EXPECT_NE(problem().find("other users may read or change it"), std::string::npos);
  if (geteuid() == 0) {
    std::filesystem::permissions(path(), std::filesystem::perms(0600));
    ASSERT_EQ(chown(path().c_str(), 1, 1), 0);
    EXPECT_NE(problem().find("belongs to another user"), std::string::npos);
  }
  std::filesystem::remove(path());
  write_verdict(folder_, key_, only_relu());
  std::string text;
  std::getline(std::ifstream(path()), text);
  for (size_t at = 0; at < text.size(); at += 7) {
    std::string damaged = text;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    std::ofstream(path()) << damaged;
    const StoredVerdict stored = read_verdict(folder_, key_);
    EXPECT_FALSE(stored.verdict) << "byte " << at;
    EXPECT_NE(stored.problem.find("damaged"), std::string::npos) << stored.problem;
  }
  std::filesystem::remove(path());
  std::filesystem::create_symlink("/etc/passwd", path());
  EXPECT_NE(problem(), "");
  std::filesystem::remove(path());
  std::filesystem::create_directory(path());
  EXPECT_NE(problem().find("not a regular file"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::kernels
