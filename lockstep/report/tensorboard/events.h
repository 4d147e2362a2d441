// The messages of TensorBoard's event files, and the files.
//
// Sources: tensorflow/core/util/event.proto, framework/summary.proto, lib/io/record_writer.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/os/file.h"

namespace lockstep {

// The encoded values of one step. A value has a tag, such as "training/loss"; the part before the
// slash groups charts.
class EventValues {
 public:
  void scalar(std::string_view tag, double value);
  // A histogram with equal buckets from the smallest to the largest value. Values that are not
  // finite are left out; without others nothing is added.
  void histogram(std::string_view tag, std::span<const float> values);
  // A PNG file.
  void image(std::string_view tag, int64_t height, int64_t width, std::string_view png);
  // Markdown.
  void text(std::string_view tag, std::string_view markdown);

  bool empty() const { return summary_.empty(); }
  const std::string& summary() const { return summary_; }

 private:
  std::string summary_;  // a message Summary
};

// A new file of events in a folder. Not thread-safe. Throws FileError.
class EventFile {
 public:
  // The name contains the time, the host and the process, in TensorBoard's form. `first_step` > 1
  // tells readers to drop what earlier files have from that step on: a run was resumed there.
  EventFile(FileSystem& files, const std::string& folder, int64_t first_step = 1);
  // Writes the values to memory, and to the file if the last write was more than a second ago.
  void add(int64_t step, const EventValues& values);
  // Writes what is in memory to the file.
  void flush();
  const std::string& path() const { return path_; }

 private:
  void record(std::string_view event);

  std::string path_;
  std::unique_ptr<WritableFile> file_;
  std::string pending_;
  double written_ = 0;  // the time of the last write
};

}  // namespace lockstep
