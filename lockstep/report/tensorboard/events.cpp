#include "lockstep/report/tensorboard/events.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>

#include "lockstep/base/os/host_name.h"
#include "lockstep/base/text.h"
#include "lockstep/report/tensorboard/crc32c.h"

namespace lockstep {
namespace {

// ---- protocol buffers: the wire format ----

void add_little_endian(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>((value >> (8 * i)) & 0xff);
}

void add_varint(std::string& out, uint64_t value) {
  for (; value > 0x7f; value >>= 7) out += static_cast<char>((value & 0x7f) | 0x80);
  out += static_cast<char>(value);
}

void add_key(std::string& out, uint32_t field, uint32_t wire) {
  add_varint(out, field << 3 | wire);
}

void add_integer(std::string& out, uint32_t field, int64_t value) {
  add_key(out, field, 0);
  add_varint(out, static_cast<uint64_t>(value));
}

void add_double(std::string& out, uint32_t field, double value) {
  add_key(out, field, 1);
  add_little_endian(out, std::bit_cast<uint64_t>(value), 8);
}

void add_float(std::string& out, uint32_t field, double value) {
  add_key(out, field, 5);
  add_little_endian(out, std::bit_cast<uint32_t>(static_cast<float>(value)), 4);
}

// Bytes, text, or a message.
void add_bytes(std::string& out, uint32_t field, std::string_view bytes) {
  add_key(out, field, 2);
  add_varint(out, bytes.size());
  out += bytes;
}

void add_doubles(std::string& out, uint32_t field, const std::vector<double>& values) {
  std::string packed;
  for (const double value : values) {
    add_little_endian(packed, std::bit_cast<uint64_t>(value), 8);
  }
  add_bytes(out, field, packed);
}

// Texts of messages must be UTF-8.
std::string sound_text(std::string_view text) {
  return is_utf8(text) ? std::string(text) : printable(text);
}

// ---- messages ----

constexpr uint32_t summary_value = 1;  // repeated, in Summary

std::string value_with(std::string_view tag) {
  std::string value;
  add_bytes(value, 1, sound_text(tag));
  return value;
}

double wall_clock() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string event_at(int64_t step) {
  std::string event;
  add_double(event, 1, wall_clock());
  add_integer(event, 2, step);
  return event;
}

constexpr int64_t histogram_buckets = 30;

}  // namespace

void EventValues::scalar(std::string_view tag, double value) {
  std::string message = value_with(tag);
  add_float(message, 2, value);
  add_bytes(summary_, summary_value, message);
}

void EventValues::histogram(std::string_view tag, std::span<const float> values) {
  double low = INFINITY, high = -INFINITY, sum = 0, squares = 0;
  int64_t count = 0;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    low = std::min(low, value);
    high = std::max(high, value);
    sum += value;
    squares += value * value;
    ++count;
  }
  if (count == 0) return;
  const int64_t buckets = low < high ? histogram_buckets : 1;
  std::vector<double> limits, counts(static_cast<size_t>(buckets), 0);
  const double width = (high - low) / static_cast<double>(buckets);
  for (int64_t i = 1; i <= buckets; ++i) {
    limits.push_back(i == buckets ? high : low + width * static_cast<double>(i));
  }
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    const auto bucket = width > 0 ? static_cast<int64_t>((value - low) / width) : 0;
    counts[static_cast<size_t>(std::clamp<int64_t>(bucket, 0, buckets - 1))] += 1;
  }
  std::string histogram;
  add_double(histogram, 1, low);
  add_double(histogram, 2, high);
  add_double(histogram, 3, static_cast<double>(count));
  add_double(histogram, 4, sum);
  add_double(histogram, 5, squares);
  add_doubles(histogram, 6, limits);
  add_doubles(histogram, 7, counts);
  std::string message = value_with(tag);
  add_bytes(message, 5, histogram);
  add_bytes(summary_, summary_value, message);
}

void EventValues::image(std::string_view tag, int64_t height, int64_t width, std::string_view png) {
  std::string image;
  add_integer(image, 1, height);
  add_integer(image, 2, width);
  add_integer(image, 3, 3);  // RGB
  add_bytes(image, 4, png);
  std::string message = value_with(tag);
  add_bytes(message, 4, image);
  add_bytes(summary_, summary_value, message);
}

void EventValues::text(std::string_view tag, std::string_view markdown) {
  std::string plugin, metadata, one, shape, tensor;
  add_bytes(plugin, 1, "text");
  add_bytes(metadata, 1, plugin);
  add_integer(one, 1, 1);
  add_bytes(shape, 2, one);
  add_integer(tensor, 1, 7);  // DT_STRING
  add_bytes(tensor, 2, shape);
  add_bytes(tensor, 8, sound_text(markdown));
  std::string message = value_with(tag);
  add_bytes(message, 8, tensor);
  add_bytes(message, 9, metadata);
  add_bytes(summary_, summary_value, message);
}

EventFile::EventFile(FileSystem& files, const std::string& folder, int64_t first_step) {
  const std::string host = host_name();
  const std::string prefix =
      "events.out.tfevents." + std::to_string(static_cast<int64_t>(wall_clock())) + "." +
      (host.empty() ? "localhost" : host) + "." + std::to_string(::getpid()) + ".";
  for (int number = 0; path_.empty() || files.exists(path_); ++number) {
    path_ = join_path(folder, prefix + std::to_string(number));
  }
  file_ = files.open(path_, false);
  std::string version;
  add_double(version, 1, wall_clock());
  add_bytes(version, 3, "brain.Event:2");
  record(version);
  if (first_step > 1) {
    std::string log, event = event_at(first_step);
    add_integer(log, 1, 1);  // SessionLog.START
    add_bytes(event, 7, log);
    record(event);
  }
  flush();
}

// A record of a TFRecord file: length, its checksum, the bytes, their checksum.
void EventFile::record(std::string_view event) {
  std::string length;
  add_little_endian(length, event.size(), 8);
  pending_ += length;
  add_little_endian(pending_, masked_crc32c(length), 4);
  pending_ += event;
  add_little_endian(pending_, masked_crc32c(event), 4);
}

void EventFile::add(int64_t step, const EventValues& values) {
  if (values.empty()) return;
  std::string event = event_at(step);
  add_bytes(event, 5, values.summary());
  record(event);
  if (std::abs(wall_clock() - written_) > 1) flush();
}

void EventFile::flush() {
  if (!pending_.empty()) file_->append(as_bytes(pending_));
  pending_.clear();
  written_ = wall_clock();
}

}  // namespace lockstep
