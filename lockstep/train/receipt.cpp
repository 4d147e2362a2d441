#include "lockstep/train/receipt.h"

#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

// Lines of a file that was cut or left by a crash, up to and including an iteration.
std::string lines_up_to(FileSystem& files, const std::string& path, int64_t last) {
  if (last <= 0 || !files.exists(path)) return {};
  const std::string text = read_text(files, path);
  std::string kept;
  size_t begin = 0;
  for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', begin)) {
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (json.is_discarded() || !json.is_object()) break;
    if (json.contains("phase")) break;
    if (json.contains("iteration") && json["iteration"].is_number_integer() &&
        json["iteration"].get<int64_t>() > last) {
      break;
    }
    kept += line + "\n";
  }
  return kept;
}

// A receipt that goes on must end where the checkpoint stands, or not be there at all.
void check_continues(FileSystem& files, const std::string& path, const TrainingStart& start) {
  const std::string text = read_text(files, path);
  if (text.empty()) return;
  const size_t begin = text.rfind('\n', text.size() - 2);
  const auto last = nlohmann::json::parse(text.substr(begin == std::string::npos ? 0 : begin + 1),
                                          nullptr, false);
  if (last.is_object() && last.value("iteration", int64_t{0}) == start.first_iteration - 1 &&
      last.value("chain", "") == start.chain.to_string()) {
    return;
  }
  throw DataError("[receipt] " + path + " does not lead up to iteration " +
                      std::to_string(start.first_iteration - 1) + ", where the checkpoint goes on",
                  "it was changed or cut; move it away to go on with a new one");
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

std::vector<ReceiptLine> read_receipt(FileSystem& files, const std::string& path) {
  const std::string text = read_text(files, path);
  std::vector<ReceiptLine> lines;
  size_t begin = 0;
  for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', begin)) {
    const std::string where =
        "[receipt] " + path + ", line " + std::to_string(lines.size() + 1) + ": ";
    const auto json = nlohmann::json::parse(text.substr(begin, end - begin), nullptr, false);
    begin = end + 1;
    if (json.is_discarded() || !json.is_object()) throw DataError(where + "it is no JSON object");
    if (json.contains("phase")) break;  // after the iterations
    ReceiptLine line;
    try {
      line = {.iteration = json.at("iteration").get<int64_t>(),
              .epoch = json.at("epoch").get<int64_t>(),
              .loss = json.at("loss").get<double>(),
              .observations = Digest::parse(json.at("observations").get<std::string>()),
              .digest = Digest::parse(json.at("digest").get<std::string>()),
              .chain = Digest::parse(json.at("chain").get<std::string>())};
    } catch (const nlohmann::json::exception& e) {
      throw DataError(where + e.what());
    } catch (const InvalidArgument& e) {
      throw DataError(where + e.what());
    }
    if (line.iteration != static_cast<int64_t>(lines.size()) + 1) {
      throw DataError(where + "iteration " + std::to_string(line.iteration) + " stands where " +
                      std::to_string(lines.size() + 1) + " should");
    }
    if (!lines.empty() && receipt_link(lines.back().chain, line.iteration, line.observations,
                                       line.loss, line.digest) != line.chain) {
      throw DataError(where + "it does not fit its chain: it, or the line before it, was changed");
    }
    lines.push_back(line);
  }
  return lines;
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

  void open(Stream& stream, const std::string& name, int64_t last) {
    const std::string path = join_path(folder, name);
    const std::string kept = lines_up_to(files, path, last);
    write_atomically(files, path, kept);
    stream.file = files.open(path, true);
  }
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
  } catch (const Error&) {
    // Whoever cares calls finish(), which throws.
  }
}

void ReceiptWriter::start(const TrainingStart& start) {
  make_folders(state_->files, state_->folder);
  state_->open(state_->receipt, "receipt.jsonl", start.first_iteration - 1);
  state_->open(state_->log, "log.jsonl", start.first_iteration - 1);
  if (start.first_iteration == 1) return;
  check_continues(state_->files, join_path(state_->folder, "receipt.jsonl"), start);
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
  nlohmann::ordered_json json{{"event", c.joined ? "worker joined" : "worker lost"},
                              {"worker", c.worker},
                              {"pid", c.pid},
                              {"iteration", c.iteration},
                              {"members", c.members}};
  if (!c.host.empty()) json["host"] = c.host;
  if (!c.joined) {
    json["how"] = c.how;
    json["seconds"] = c.seconds;
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
  // The receipt holds nothing that depends on who computed: two runs can be compared by bytes.
  const nlohmann::json loss = r.loss, accuracy = r.accuracy, rate = r.learning_rate;
  s.receipt.pending += fmt::format(
      R"({{"iteration":{},"epoch":{},"observations":"{}","loss":{},"digest":"{}","chain":"{}"}})"
      "\n",
      r.iteration, r.epoch, r.observations.to_string(), loss.dump(), r.digest.to_string(),
      r.chain.to_string());
  s.log.pending += fmt::format(
      R"({{"iteration":{},"epoch":{},"in_epoch":{},"loss":{},"accuracy":{},"learning_rate":{},"elapsed":{:.6f},"seconds":{:.6f},"observations":{}}})"
      "\n",
      r.iteration, r.epoch, r.in_epoch, loss.dump(), accuracy.dump(), rate.dump(), r.elapsed,
      r.seconds, r.observations_count);
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
  state_->receipt.pending += fmt::format(
      R"({{"phase":"population statistics","iteration":{},"observations":"{}","digest":"{}","chain":"{}"}})"
      "\n",
      r.iteration, r.observations.to_string(), r.digest.to_string(), r.chain.to_string());
  state_->log.pending += fmt::format(
      R"({{"phase":"population statistics","iteration":{},"layers":{},"passes":{},"seconds":{:.6f}}})"
      "\n",
      r.iteration, r.layers, r.passes, r.seconds);
  state_->flush(true);
}

// Before the checkpoint is there: a training that resumes from it finds every line up to it.
void ReceiptWriter::saving(int64_t) { state_->flush(true); }

void ReceiptWriter::finish() { state_->flush(true); }

}  // namespace lockstep
