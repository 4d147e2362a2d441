#include "lockstep/engine/formats/safetensors.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/random.h"
#include "lockstep/base/os/file.h"

namespace lockstep {
namespace {

std::vector<std::byte> file_of(const std::string& header, size_t data,
                               std::optional<uint64_t> length = {}) {
  const uint64_t claimed = length.value_or(header.size());
  std::vector<std::byte> bytes(8 + header.size() + data);
  std::memcpy(bytes.data(), &claimed, 8);
  std::memcpy(bytes.data() + 8, header.data(), header.size());
  return bytes;
}

std::vector<NamedTensor> some_tensors() {
  const std::vector<float> floats{1.5f, -2, 3, 4, 5, 1e-30f};
  const std::vector<int32_t> ints{1, -2, 3};
  const std::vector<uint8_t> bytes{7, 8, 255};
  return {{"bytes", Tensor::from(std::span<const uint8_t>(bytes), {3})},
          {"weights", Tensor::from(std::span<const float>(floats), {2, 3})},
          {"scalar", Tensor::scalar(0.25f)},
          {"empty", Tensor(Shape{0, 5}, DType::f32)},
          {"ints", Tensor::from(std::span<const int32_t>(ints), {3, 1})}};
}

TEST(Safetensors, ReadsWhatItWrote) {
  const auto bytes = write_safetensors(some_tensors(), {{"a", "b\n\"ü\""}, {"", ""}});
  const SafetensorsFile file = read_safetensors(bytes, "f");
  EXPECT_EQ(file.metadata, (std::map<std::string, std::string>{{"a", "b\n\"ü\""}, {"", ""}}));
  ASSERT_EQ(file.tensors.size(), 5u);
  for (const NamedTensor& wanted : some_tensors()) {
    const Tensor& read = file.at(wanted.name, "f");
    EXPECT_EQ(read.shape(), wanted.tensor.shape());
    ASSERT_EQ(read.dtype(), wanted.tensor.dtype());
    if (read.bytes() > 0) {
      EXPECT_EQ(std::memcmp(read.raw(), wanted.tensor.raw(), read.bytes()), 0) << wanted.name;
    }
  }
  EXPECT_THROW(file.at("weight", "f"), DataError);
}

TEST(Safetensors, DataBeginsAtAMultipleOf64Bytes) {
  uint64_t length;
  for (size_t n = 0; n < 70; ++n) {
    const auto bytes = write_safetensors({{std::string(n + 1, 'x'), Tensor::scalar(1)}}, {});
    std::memcpy(&length, bytes.data(), 8);
    EXPECT_EQ((8 + length) % 64, 0u);
    EXPECT_EQ(bytes.size(), 8 + length + 4);
  }
}

TEST(Safetensors, RefusesNamesThatCannotBe) {
  const Tensor one = Tensor::scalar(1);
  EXPECT_THROW(write_safetensors({{"a", one}, {"a", one}}, {}), InvalidArgument);
  EXPECT_THROW(write_safetensors({{"__metadata__", one}}, {}), InvalidArgument);
  EXPECT_THROW(write_safetensors({{"\xff", one}}, {}), InvalidArgument);
  EXPECT_THROW(write_safetensors({{"a", Tensor()}}, {}), InvalidArgument);
}

struct Hostile {
  const char* name;
  std::string header;
  size_t data;
  std::optional<uint64_t> length = {};
};

std::string entry(const std::string& name, const std::string& shape, const std::string& offsets,
                  const std::string& type = "\"F32\"") {
  return "\"" + name + "\":{\"dtype\":" + type + ",\"shape\":" + shape +
         ",\"data_offsets\":" + offsets + "}";
}

TEST(Safetensors, HostileFilesGiveDataErrorOnly) {
  const std::string big = "18446744073709551615", two62 = "4611686018427387904";
  const std::vector<Hostile> cases{
      {"no JSON", "nonsense", 0},
      {"a list", "[]", 0},
      {"cut", "{\"a\":", 0},
      {"header longer than the file", "{}", 0, uint64_t{3}},
      {"header length overflows", "{}", 0, UINT64_MAX},
      {"header too long", "{}", 0, uint64_t{100'000'001}},
      {"deep lists", std::string(1 << 20, '['), 0},
      {"deep objects",
       [] {
         std::string s;
         for (int i = 0; i < 100000; ++i) s += "{\"a\":";
         return s;
       }(),
       0},
      {"deep in a shape", "{" + entry("a", "[[[1]]]", "[0,4]") + "}", 4},
      {"entry is a number", "{\"a\":1}", 0},
      {"no type", "{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4},
      {"one field more", "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1}}",
       4},
      {"unknown type", "{" + entry("a", "[1]", "[0,4]", "\"F31\"") + "}", 4},
      {"type is not text", "{" + entry("a", "[1]", "[0,4]", "4") + "}", 4},
      {"NaN in a shape", "{" + entry("a", "[NaN]", "[0,4]") + "}", 4},
      {"null in a shape", "{" + entry("a", "[null]", "[0,4]") + "}", 4},
      {"fraction in a shape", "{" + entry("a", "[1.0]", "[0,4]") + "}", 4},
      {"negative extent", "{" + entry("a", "[-1]", "[0,4]") + "}", 4},
      {"shape is text", "{" + entry("a", "\"1\"", "[0,4]") + "}", 4},
      {"extent overflows", "{" + entry("a", "[" + big + "]", "[0,4]") + "}", 4},
      {"elements overflow", "{" + entry("a", "[" + two62 + "," + two62 + "]", "[0,4]") + "}", 4},
      {"bytes overflow to 4", "{" + entry("a", "[4611686018427387905]", "[0,4]") + "}", 4},
      {"elements overflow to 0", "{" + entry("a", "[4294967296,4294967296]", "[0,0]") + "}", 0},
      {"shape larger than bytes", "{" + entry("a", "[2]", "[0,4]") + "}", 4},
      {"offsets backwards", "{" + entry("a", "[1]", "[4,0]") + "}", 4},
      {"offsets overflow", "{" + entry("a", "[1]", "[18446744073709551612,0]") + "}", 4},
      {"one offset", "{" + entry("a", "[1]", "[0]") + "}", 4},
      {"negative offset", "{" + entry("a", "[1]", "[-4,0]") + "}", 4},
      {"beyond the end", "{" + entry("a", "[2]", "[0,8]") + "}", 4},
      {"overlap", "{" + entry("a", "[2]", "[0,8]") + "," + entry("b", "[1]", "[4,8]") + "}", 8},
      {"same bytes twice",
       "{" + entry("a", "[1]", "[0,4]") + "," + entry("b", "[1]", "[0,4]") + "}", 4},
      {"gap", "{" + entry("a", "[1]", "[0,4]") + "," + entry("b", "[1]", "[8,12]") + "}", 12},
      {"gap in front", "{" + entry("a", "[1]", "[4,8]") + "}", 8},
      {"bytes behind", "{" + entry("a", "[1]", "[0,4]") + "}", 5},
      {"name twice", "{" + entry("a", "[1]", "[0,4]") + "," + entry("a", "[1]", "[0,4]") + "}", 4},
      {"key twice in an entry",
       "{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4},
      {"metadata is a list", "{\"__metadata__\":[]}", 0},
      {"metadata holds numbers", "{\"__metadata__\":{\"a\":1}}", 0},
      {"no UTF-8", "{" + entry("\xff\xfe", "[1]", "[0,4]") + "}", 4},
  };
  for (const Hostile& hostile : cases) {
    try {
      read_safetensors(file_of(hostile.header, hostile.data, hostile.length), "the file");
      ADD_FAILURE() << hostile.name << " was read";
    } catch (const DataError& error) {
      EXPECT_NE(std::string(error.what()).find("the file"), std::string::npos) << error.what();
    } catch (const std::exception& error) {
      ADD_FAILURE() << hostile.name << ": " << error.what();
    }
  }
}

TEST(Safetensors, EveryCutIsNoticed) {
  const auto bytes = write_safetensors(some_tensors(), {{"k", "v"}});
  for (size_t n = 0; n < bytes.size(); ++n) {
    EXPECT_THROW(read_safetensors(std::span(bytes).first(n), "f"), DataError) << n;
  }
}

TEST(Safetensors, RandomDamageGivesDataErrorOrAFile) {
  const auto bytes = write_safetensors(some_tensors(), {{"k", "v"}});
  const RandomStream random({.seed = 1, .use = RandomUse::user});
  int refused = 0;
  constexpr uint64_t rounds = 5000;
  for (uint64_t i = 0; i < rounds; ++i) {
    auto damaged = bytes;
    for (uint64_t k = 0; k < 1 + i % 3; ++k) {
      damaged[random.below(8 * i + 2 * k, damaged.size())] =
          static_cast<std::byte>(random.bits(8 * i + 2 * k + 1));
    }
    try {
      read_safetensors(damaged, "f");
    } catch (const DataError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, static_cast<int>(rounds) / 4);
}

// The PyPI package is an independent reader of these files.
TEST(Safetensors, PythonReadsWhatWeWrite) {
  const char* python = std::getenv("LOCKSTEP_TEST_PYTHON");
  const std::string interpreter = python != nullptr ? python : "python3";
  if (std::system((interpreter + " -c 'import safetensors.numpy' 2>/dev/null").c_str()) != 0) {
    GTEST_SKIP() << interpreter << " has no safetensors and numpy: this comparison was not run";
  }
  std::string folder = (std::filesystem::temp_directory_path() / "lockstep_XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  write_atomically(local_files(), folder + "/a.safetensors",
                   write_safetensors(some_tensors(), {{"k", "v ü"}}));
  const std::string script = R"(
import sys, numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
path = sys.argv[1] + "/a.safetensors"
t = load_file(path)
assert set(t) == {"bytes", "weights", "scalar", "empty", "ints"}, set(t)
assert t["weights"].dtype == np.float32 and t["weights"].shape == (2, 3)
assert t["weights"].tolist() == [[1.5, -2, 3], [4, 5, float(np.float32(1e-30))]]
assert t["scalar"].shape == () and t["scalar"] == 0.25
assert t["empty"].shape == (0, 5)
assert t["ints"].dtype == np.int32 and t["ints"].tolist() == [[1], [-2], [3]]
assert t["bytes"].dtype == np.uint8 and t["bytes"].tolist() == [7, 8, 255]
with safe_open(path, "numpy") as f: assert f.metadata() == {"k": "v \u00fc"}, f.metadata()
save_file({"x": np.arange(6, dtype=np.float32).reshape(2, 3), "n": np.array([2**40])},
          sys.argv[1] + "/b.safetensors", {"from": "python"})
)";
  write_atomically(local_files(), folder + "/check.py", script);
  ASSERT_EQ(std::system((interpreter + " " + folder + "/check.py " + folder).c_str()), 0);
  const SafetensorsFile file =
      read_safetensors(local_files().read(folder + "/b.safetensors"), "b.safetensors");
  EXPECT_EQ(file.metadata.at("from"), "python");
  EXPECT_EQ(file.at("x", "b").to_vector(), (std::vector<float>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(*file.at("n", "b").data<int64_t>(), int64_t{1} << 40);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace lockstep
