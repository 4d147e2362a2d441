#include "lockstep/train/state/receipt.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>

#include "lockstep/base/error.h"
#include "lockstep/base/json/json_text.h"
#include "lockstep/base/os/file.h"
#include "lockstep/train/records/training_start.h"
#include "lockstep/train/state/receipt_check.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kWrittenChunk = size_t{1} << 20;  // bytes that are written at a time
constexpr size_t kLongestLine = size_t{16} << 20;  // of a log; a longer one is damage

// Selects the lines of a log up to an iteration. Omits invalid JSON (left by a crash), lines of
// later iterations, and lines of validations after the last one that counts.
class LogUpTo {
 public:
  LogUpTo(const TrainingStart& start, WritableFile& to)
      : last_(start.first_iteration - 1), last_validation_(start.last_validation), to_(to) {}

  void add(std::string_view text) {
    size_t begin = 0;
    for (size_t end = text.find('\n'); end != std::string_view::npos;
         end = text.find('\n', begin)) {
      add_to_line(text.substr(begin, end - begin));
      if (!overlong_) select(line_);
      line_.clear();
      overlong_ = false;
      begin = end + 1;
    }
    add_to_line(text.substr(begin));
  }
  void finish() { write(0); }

 private:
  void add_to_line(std::string_view text) {
    overlong_ = overlong_ || line_.size() + text.size() > kLongestLine;
    if (!overlong_) line_ += text;
  }
  void select(const std::string& line) {
    const auto json = parse_json_or_discard<nlohmann::json>(line);
    if (json.is_discarded() || !json.is_object()) return;
    const auto number = json.find("iteration");
    const bool of_iteration = number != json.end() && number->is_number_integer();
    if (json.contains("phase") || (of_iteration && number->get<int64_t>() > last_)) return;
    if (json.contains("validation_loss") && of_iteration &&
        number->get<int64_t>() > last_validation_) {
      return;
    }
    // Events that no iteration follows belong to later iterations.
    events_ += line + "\n";
    if (!of_iteration) return;
    kept_ += events_;
    events_.clear();
    write(kWrittenChunk);
  }
  void write(size_t least) {
    if (kept_.size() <= least) return;
    to_.append(as_bytes(kept_));
    kept_.clear();
  }

  const int64_t last_, last_validation_;
  WritableFile& to_;
  std::string line_, events_, kept_;
  bool overlong_ = false;
};

// Replaces a log by its lines up to the start of the training. It is never whole in memory.
void cut_log(FileSystem& files, const std::string& path, const TrainingStart& start) {
  const bool any = start.first_iteration > 1 && files.exists(path);
  write_atomically(files, path, [&](WritableFile& file) {
    if (!any) return;
    LogUpTo lines(start, file);
    files.read_in_chunks(path, [&](std::span<const std::byte> chunk) {
      lines.add({reinterpret_cast<const char*>(chunk.data()), chunk.size()});
    });
    lines.finish();
  });
}

}  // namespace

Digest receipt_link(const Digest& chain, int64_t iteration, const Digest& observations, double loss,
                    const Digest& digest) {
  Digester digester;
  digester.add(chain);
  digester.add(static_cast<uint64_t>(iteration));
  digester.add(observations);
  digester.bytes(&loss, sizeof loss);
  digester.add(digest);
  return digester.finish();
}

Digest receipt_link(const Digest& chain, const PopulationRecord& record) {
  Digester digester;
  digester.add(chain);
  digester.add("population statistics");
  digester.add(static_cast<uint64_t>(record.iteration));
  digester.add(record.observations);
  digester.add(record.digest);
  return digester.finish();
}

std::string receipt_rest_note(std::string_view text, const std::string& path) {
  const size_t last = text.rfind('\n');
  const size_t rest = text.size() - (last == std::string_view::npos ? 0 : last + 1);
  if (rest == 0) return {};
  return fmt::format(
      "{}: {} byte{} its last whole line and {} not part of the receipt: a line was cut off, or "
      "something was appended",
      path, rest, rest == 1 ? " follows" : "s follow", rest == 1 ? "is" : "are");
}

Receipt read_whole_receipt(FileSystem& files, const std::string& path) {
  const std::string text = read_text(files, path);
  Receipt receipt;
  receipt.rest_note = receipt_rest_note(text, path);
  std::vector<ReceiptLine>& lines = receipt.lines;
  size_t begin = 0;
  for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', begin)) {
    const std::string where = "[receipt] " + path + ", line " +
                              std::to_string(lines.size() + (receipt.population ? 2 : 1)) + ": ";
    const std::string_view here = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    if (receipt.population) {
      throw DataError(where +
                      "it follows the population statistics, the end of a receipt: it was "
                      "appended");
    }
    ReceiptLine line;
    try {
      if (here.starts_with(R"({"phase":)")) {
        receipt.population = parse_population_line(here, lines);
        continue;
      }
      line = parse_receipt_line(here);
    } catch (const DataError& e) {
      throw DataError(where + e.what());
    }
    if (line.iteration != static_cast<int64_t>(lines.size()) + 1) {
      throw DataError(where + "iteration " + std::to_string(line.iteration) +
                      " is in the place of " + std::to_string(lines.size() + 1));
    }
    if (!lines.empty() && receipt_link(lines.back().chain, line.iteration, line.observations,
                                       line.loss, line.digest) != line.chain) {
      throw DataError(where +
                      "it does not match its chain: it, or the line before it, was changed");
    }
    lines.push_back(line);
  }
  return receipt;
}

std::vector<ReceiptLine> read_receipt(FileSystem& files, const std::string& path) {
  return read_whole_receipt(files, path).lines;
}

ReceiptLine line_of(const IterationRecord& r) {
  return {r.iteration, r.epoch, r.loss, r.observations, r.digest, r.chain};
}

struct ReceiptWriter::State {
  FileSystem& files;
  std::string folder;
  struct Stream {
    std::unique_ptr<WritableFile> file;
    std::string pending;
  };
  Stream receipt, log;
  Clock::time_point flushed = Clock::now();

  void flush(bool sync) {
    for (Stream* stream : {&receipt, &log}) {
      if (!stream->file) continue;
      if (!stream->pending.empty()) stream->file->append(as_bytes(stream->pending));
      stream->pending.clear();
      if (sync) stream->file->sync();
    }
    flushed = Clock::now();
  }
};

ReceiptWriter::ReceiptWriter(FileSystem& files, std::string folder)
    : state_(new State{files, std::move(folder), {}, {}, {}}) {}

ReceiptWriter::~ReceiptWriter() {
  try {
    state_->flush(false);
  } catch (const std::exception&) {
    // finish() reports errors by exceptions; the destructor ignores them.
  }
}

void ReceiptWriter::start(const TrainingStart& start) {
  FileSystem& files = state_->files;
  make_folders(files, state_->folder);
  const std::string receipt = join_path(state_->folder, "receipt.jsonl"),
                    log = join_path(state_->folder, "log.jsonl");
  // Checked before any file is changed.
  const std::string kept = sound_receipt(files, receipt, start);
  cut_log(files, log, start);
  write_atomically(files, receipt, kept);
  state_->receipt.file = files.open(receipt, true);
  state_->log.file = files.open(log, true);
  if (start.first_iteration == 1) return;
  state_->log.pending += fmt::format(R"({{"event":"resumed","iteration":{}}})"
                                     "\n",
                                     start.first_iteration - 1);
}

void ReceiptWriter::stopped(int64_t iteration) {
  state_->log.pending += fmt::format(R"({{"event":"stopped","iteration":{}}})"
                                     "\n",
                                     iteration);
  state_->flush(true);
}

void ReceiptWriter::worker(const WorkerChange& c) {
  nlohmann::ordered_json json{{"event", c.joined ? "worker joined"
                                        : c.left ? "worker left"
                                                 : "worker lost"},
                              {"worker", c.worker},
                              {"pid", c.pid},
                              {"iteration", c.iteration},
                              {"members", c.members}};
  if (!c.host.empty()) json["host"] = c.host;
  if (!c.joined && !c.left) {
    json["how"] = c.how;
    json["seconds"] = c.seconds;
  }
  state_->log.pending += json.dump() + "\n";
}

void ReceiptWriter::workers(const std::vector<WorkerSummary>& all, int64_t iteration) {
  nlohmann::ordered_json json{{"event", "workers"}, {"iteration", iteration}};
  for (const WorkerSummary& w : all) {
    if (w.lost || w.left) continue;
    nlohmann::ordered_json one{{"worker", w.worker}, {"shards", w.shards}};
    one["shard_ms"] = std::round(1e6 * w.shard_seconds) / 1000;
    one["iteration_ms"] = std::round(1e6 * w.iteration_seconds) / 1000;
    if (!w.host.empty()) one["host"] = w.host;
    json["workers"].push_back(std::move(one));
  }
  state_->log.pending += json.dump() + "\n";
}

void ReceiptWriter::notice(const std::string& text) {
  const nlohmann::ordered_json json{{"event", "notice"}, {"text", text}};
  state_->log.pending +=
      json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

void ReceiptWriter::out_of_patience(int64_t iteration) {
  state_->log.pending += fmt::format(R"({{"event":"out of patience","iteration":{}}})"
                                     "\n",
                                     iteration);
}

void ReceiptWriter::iteration(const IterationRecord& r) {
  State& s = *state_;
  // The receipt does not depend on the threads and workers, so two runs can be compared bytewise.
  const nlohmann::json loss = r.loss, accuracy = r.accuracy, rate = r.learning_rate;
  s.receipt.pending += receipt_text(line_of(r)) + "\n";
  s.log.pending += fmt::format(
      R"({{"iteration":{},"epoch":{},"in_epoch":{},"loss":{},"accuracy":{},"learning_rate":{},"elapsed":{:.6f},"seconds":{:.6f},"observations":{}{}}})"
      "\n",
      r.iteration, r.epoch, r.in_epoch, loss.dump(), accuracy.dump(), rate.dump(), r.elapsed,
      r.seconds, r.observations_count,
      r.steps_count > 0 ? fmt::format(",\"steps\":{}", r.steps_count) : std::string());
  if (Clock::now() - s.flushed > std::chrono::seconds(1)) s.flush(false);
}

void ReceiptWriter::validation(const ValidationRecord& r) {
  nlohmann::ordered_json json{{"iteration", r.iteration},
                              {"epoch", r.epoch},
                              {"validation_loss", r.loss},
                              {"validation_accuracy", r.accuracy},
                              {"validation_observations", r.observations},
                              {"validation_seconds", r.seconds}};
  for (const MetricValue& m : r.metrics) json["validation_metrics"][m.name] = m.value;
  state_->log.pending +=
      json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  state_->flush(false);
}

void ReceiptWriter::population(const PopulationRecord& r) {
  state_->receipt.pending +=
      population_text({r.iteration, r.observations, r.digest, r.chain}) + "\n";
  state_->log.pending += fmt::format(
      R"({{"phase":"population statistics","iteration":{},"layers":{},"passes":{},"seconds":{:.6f}}})"
      "\n",
      r.iteration, r.layers, r.passes, r.seconds);
  state_->flush(true);
}

// Called before the checkpoint is written, so that the receipt has every line up to it.
void ReceiptWriter::saving(int64_t) { state_->flush(true); }

void ReceiptWriter::finish() { state_->flush(true); }

}  // namespace lockstep
