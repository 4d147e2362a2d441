// Kernels that use cuDNN and cuBLASLt, with stand-ins for these libraries (stand_in/). The tests
// show that the calls are right; only a GPU can show the libraries' results.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/engine/kernels/backends/kernel_info.h"
#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/engine/kernels/cuda/cuda.h"
#include "lockstep/engine/kernels/cuda/shapes/layout.h"
#include "lockstep/engine/kernels/matrices/fully_connected.h"
#include "lockstep/engine/kernels/windows/convolution.h"
#include "lockstep/engine/kernels/windows/transposed_convolution.h"
#include "tests/engine/cuda/harness.h"

namespace lockstep::kernels::cudatest {
namespace {

struct Row {
  Shape src;
  int64_t channels;  // of dst
  Window window;
  int64_t groups = 1;
};

const std::vector<Row>& rows() {
  static const std::vector<Row> all{
      {{1, 1, 1, 1}, 1, {}},
      {{2, 3, 5, 7}, 4, {.kernel = {1, 1}}},
      {{2, 3, 5, 7}, 4, {.kernel = {3, 3}, .pad_begin = {1, 1}, .pad_end = {1, 1}}},
      {{2, 3, 9, 6}, 5, {.kernel = {3, 2}, .stride = {2, 3}, .pad_begin = {1, 0}}},
      {{2, 3, 9, 6}, 5, {.kernel = {2, 3}, .dilation = {3, 2}, .pad_end = {2, 1}}},
      {{2, 3, 9, 8},
       5,
       {.kernel = {3, 3}, .stride = {2, 2}, .pad_begin = {1, 2}, .pad_end = {2, 1}}},
      {{1, 4, 6, 5}, 6, {.kernel = {3, 3}, .pad_begin = {1, 1}, .pad_end = {1, 1}}, 2},
      {{1, 4, 6, 5}, 4, {.kernel = {2, 2}, .pad_end = {1, 1}}, 4},
  };
  return all;
}

std::string describe(const Row& r) {
  return r.src.to_string() + " to " + std::to_string(r.channels) + " channels, kernel " +
         r.window.kernel.to_string() + ", groups " + std::to_string(r.groups);
}

TEST(CudaLibraries, Convolution) {
  std::cout << "not run: cuDNN and cuBLASLt themselves, which need a GPU\n";
  for (const Row& r : rows()) {
    SCOPED_TRACE(describe(r));
    const Window& w = r.window;
    ConvolutionProblem p;
    p.src = plain(r.src);
    p.weights = {r.channels, r.src[1] / r.groups, w.kernel[0], w.kernel[1]};
    p.dst = {r.src[0], r.channels, window_positions(w, 0, r.src[2]),
             window_positions(w, 1, r.src[3])};
    p.window = w;
    p.groups = r.groups;
    for (const bool bias : {true, false}) {
      p.bias = bias;
      compare(cpu_table().convolution(p), cuda::convolution(p), kClose);
    }
  }
}

// Sequences are images with one row.
TEST(CudaLibraries, ConvolutionAlongOneAxis) {
  ConvolutionProblem p;
  p.src = plain({2, 3, 9});
  p.weights = {5, 3, 3};
  p.window = {{3}, {2}, {1}, {1}, {2}};
  p.dst = {2, 5, window_positions(p.window, 0, 9)};
  compare(cpu_table().convolution(p), cuda::convolution(p), kClose);
  EXPECT_TRUE(cuda::convolution(p).forward.reads[0].spec == cuda::channels_last({2, 3, 9}));
}

TEST(CudaLibraries, ConvolutionAlongThreeAxes) {
  const std::vector<Row> volumes{
      {{1, 1, 1, 1, 1}, 1, {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {0, 0, 0}}},
      {{2, 3, 9, 1, 1}, 5, {{3, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {0, 0, 0}}},
      {{2, 3, 4, 5, 6}, 4, {{3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}}},
      {{2, 3, 6, 7, 8}, 5, {{2, 3, 2}, {1, 2, 3}, {2, 1, 3}, {1, 0, 2}, {0, 2, 1}}},
      {{1, 4, 3, 4, 5}, 6, {{2, 2, 2}, {1, 1, 1}, {1, 1, 1}, {1, 0, 0}, {0, 0, 1}}, 2},
      // Dilated: the gradient of x is this project's kernel, in both layouts.
      {{2, 3, 6, 7, 8}, 5, {{2, 3, 2}, {2, 1, 1}, {1, 2, 3}, {0, 2, 1}, {1, 0, 2}}},
      {{2, 6, 5, 6, 7}, 4, {{3, 2, 2}, {1, 2, 1}, {2, 2, 1}, {2, 1, 0}, {0, 1, 1}}, 2},
  };
  for (const Row& r : volumes) {
    SCOPED_TRACE(describe(r));
    const Window& w = r.window;
    ConvolutionProblem p;
    p.src = plain(r.src);
    p.weights = {r.channels, r.src[1] / r.groups, w.kernel[0], w.kernel[1], w.kernel[2]};
    p.dst = {r.src[0], r.channels, window_positions(w, 0, r.src[2]),
             window_positions(w, 1, r.src[3]), window_positions(w, 2, r.src[4])};
    p.window = w;
    p.groups = r.groups;
    p.bias = true;
    compare(cpu_table().convolution(p), cuda::convolution(p), kClose);
  }
  // n x depth x rows x columns x c, if cuDNN has this layout.
  ConvolutionProblem p;
  p.src = plain({2, 3, 4, 5, 6});
  p.weights = {4, 3, 2, 2, 2};
  p.dst = {2, 4, 3, 4, 5};
  p.window = {{2, 2, 2}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {0, 0, 0}};
  const Kernel kernel = cuda::convolution(p);
  EXPECT_TRUE(kernel.forward.reads[0].spec == cuda::channels_last(p.src.shape));
  EXPECT_TRUE(kernel.forward.reads[1].spec == cuda::channels_last(p.weights));
  EXPECT_TRUE(kernel.forward.writes[0].spec == cuda::channels_last(p.dst));
}

TEST(CudaLibraries, TransposedConvolution) {
  for (const Row& r : rows()) {
    SCOPED_TRACE(describe(r));
    const Window& w = r.window;
    TransposedConvolutionProblem p;
    p.src = plain(r.src);
    p.weights = {r.src[1], r.channels / r.groups, w.kernel[0], w.kernel[1]};
    p.dst = {r.src[0], r.channels, transposed_size(w, 0, r.src[2]),
             transposed_size(w, 1, r.src[3])};
    p.window = w;
    p.groups = r.groups;
    for (const bool bias : {true, false}) {
      p.bias = bias;
      compare(cpu_table().transposed_convolution(p), cuda::transposed_convolution(p), kClose);
    }
  }
}

TEST(CudaLibraries, FullyConnected) {
  for (const Shape& shape : std::vector<Shape>{
           {1, 1}, {5, 3}, {4, 1, 1, 1}, {2, 3, 5, 7}, {3, 4, 5}, {2, 40, 1, 1}, {2, 3, 2, 5, 4}}) {
    SCOPED_TRACE(shape.to_string());
    for (const int64_t units : {1, 7}) {
      for (const bool bias : {true, false}) {
        const FullyConnectedProblem row_major{plain(shape), units, bias};
        const FullyConnectedProblem last{cuda::channels_last(shape), units, bias};
        const Kernel cpu = cpu_table().fully_connected(row_major);
        compare(cpu, cuda::fully_connected(row_major), kClose);
        compare(cpu, cuda::fully_connected(last), kClose);
      }
    }
  }
}

// Channels last for weights too. The stand-in has no groups for this layout, so these are
// row-major.
TEST(CudaLibraries, LayoutsOfConvolutions) {
  ConvolutionProblem p;
  p.src = plain({2, 4, 5, 7});
  p.weights = {6, 4, 3, 3};
  p.dst = {2, 6, 3, 5};
  p.window.kernel = {3, 3};
  Kernel kernel = cuda::convolution(p);
  EXPECT_TRUE(kernel.forward.reads[0].spec == cuda::channels_last({2, 4, 5, 7}));
  EXPECT_TRUE(kernel.forward.reads[1].spec == cuda::channels_last({6, 4, 3, 3}));
  EXPECT_TRUE(kernel.forward.writes[0].spec == cuda::channels_last({2, 6, 3, 5}));
  p.groups = 2;
  p.weights = {6, 2, 3, 3};
  kernel = cuda::convolution(p);
  EXPECT_TRUE(kernel.forward.reads[0].spec.row_major());
}

TEST(CudaLibraries, ChosenAlgorithmsAreLogged) {
  const auto path =
      std::filesystem::path(testing::TempDir()) / ("device-log-" + std::to_string(getpid()));
  setenv("LOCKSTEP_DEVICE_LOG", path.c_str(), 1);
  ConvolutionProblem p;
  p.src = plain({2, 4, 5, 7});
  p.weights = {6, 4, 3, 3};
  p.dst = {2, 6, 3, 5};
  p.window.kernel = {3, 3};
  cuda::convolution(p);
  cuda::fully_connected({plain({5, 3}), 7, false});
  unsetenv("LOCKSTEP_DEVICE_LOG");
  cuda::convolution(p);  // not logged
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  std::filesystem::remove(path);
  ASSERT_EQ(lines.size(), 4u);  // a convolution, and three products
  const auto convolution = nlohmann::json::parse(lines[0]);
  EXPECT_EQ(convolution["convolution"]["type"], "f32");
  EXPECT_EQ(convolution["convolution"]["channels_last"], true);
  for (const char* pass : {"forward", "data", "weights"}) {
    EXPECT_EQ(convolution[pass]["algorithm"], 2);
    EXPECT_EQ(convolution[pass]["arithmetic"], 3);
    EXPECT_EQ(convolution[pass]["workspace"], 300);
    EXPECT_EQ(convolution[pass]["proposed"], true);
  }
  for (size_t i = 1; i < lines.size(); ++i) {
    EXPECT_TRUE(nlohmann::json::parse(lines[i]).contains("product"));
  }
}

TEST(CudaLibraries, WhatNoLayoutDoesIsUnsupported) {
  ConvolutionProblem p;
  p.src = plain({2, 4, 5, 7});
  p.weights = {6, 4, 3, 3};
  p.dst = {2, 6, 4, 4};  // not the result of this window
  p.window.kernel = {3, 3};
  EXPECT_THROW(cuda::convolution(p), Unsupported);
}

TEST(CudaLibraries, RequestsTheChoiceOfAlgorithms) {
  EXPECT_TRUE(cuda::choice().deterministic);
  EXPECT_FALSE(cuda::choice().tf32);
  cuda::follow(kernels::choice);
  {
    const ThreadChoice own({.deterministic = false, .tf32 = true});
    EXPECT_FALSE(cuda::choice().deterministic);
    EXPECT_TRUE(cuda::choice().tf32);
  }
  EXPECT_TRUE(cuda::choice().deterministic);
  cuda::follow(nullptr);
}

TEST(CudaLibraries, TableIsComplete) {
  const Table& t = cuda::table();
  EXPECT_EQ(t.version, Table::kVersion);
  for_each_kernel([&]<KernelId id, auto entry>() {
    EXPECT_EQ(t.*entry != nullptr, info_of(id).on_gpu()) << info_of(id).name;
  });
}

}  // namespace
}  // namespace lockstep::kernels::cudatest
