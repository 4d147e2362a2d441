// The files of a run's folder, which may come from anyone: for reports, lists and the dashboard.
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/report/dashboard/run_list.h"
#include "lockstep/report/pages/run_log.h"
#include "lockstep/report/pages/run_page.h"
#include "lockstep/runs/folders/run_facts.h"
#include "lockstep/runs/folders/run_state.h"
#include "tests/fuzz/scratch.h"
#include "tests/fuzz/target.h"

namespace lockstep::fuzz {
namespace {

struct File {
  const char *name, *content;
};

constexpr File kFiles[] = {
    {"job.json",
     R"({"name":"small","data":{"train":"builtin:digits"},"network":{"layers":[{"type":"image_input","height":28,"width":28,"channels":1},{"type":"fully_connected","units":10},{"type":"softmax"}],"loss":"cross_entropy"},"training":{"solver":"adam","seed":3}})"},
    {"run.json",
     R"({"lockstep.run":"1","id":"0123456789abcdef0123456789abcdef","created":"2026-11-23T20:23:14Z","host":"h","version":"0.1.0","device":"cpu","threads":2,"workers":0,"iterations":40,"iterations_per_epoch":10,"first_iteration":0,"observations":1000,"validation_observations":100,"seconds":1.5,"data":"x","variables":{"depth":2,"solver":"adam"},"fingerprint":{"processor":"p"},"scores":{"validation.loss":0.5}})"},
    {"notes.json", R"({"lockstep.notes":"1","tags":["a","b"],"note":"n","archived":true})"},
    {"state.json",
     R"({"lockstep.state":"1","state":"stopped","reason":"max_time is over","time":"2026-11-23T20:23:14Z","iteration":40})"},
    {"log.jsonl",
     R"({"iteration":1,"epoch":1,"loss":2.5,"accuracy":0.1,"learning_rate":0.01,"elapsed":0.1,"seconds":0.1,"images":100}
{"iteration":2,"epoch":1,"loss":null,"accuracy":0.2,"learning_rate":0.02,"elapsed":0.2,"seconds":0.1}
{"validation":2,"epoch":1,"loss":0.5,"accuracy":0.5}
{"event":"worker lost","worker":1,"seconds":0.1,"text":"t"}
{"event":"workers","iteration":2,"workers":[{"worker":0,"shards":3,"shard_ms":1.5,"iteration_ms":2}]}
)"},
    {"confusion.json", R"({"classes":["a","b"],"counts":[[5,1],[0,4]]})"},
    {"predictions.json",
     R"({"kind":"classes","worst":[{"name":"a.png","class":"a","predicted":"b","score":0.9,"picture":"iVBORw0KGgo="}]})"},
    {"profile.json", R"({"layers":[{"name":"c","seconds":0.5}],"total":1.5})"}};

}  // namespace

// The first byte chooses the file that the others are. The rest of the folder is sound.
void parse(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  static const Scratch folder;
  const size_t chosen = std::to_integer<size_t>(bytes.front()) % std::size(kFiles);
  for (size_t i = 0; i < std::size(kFiles); ++i) {
    const Bytes sound = bytes_of(kFiles[i].content);
    folder.write(kFiles[i].name, i == chosen ? bytes.subspan(1) : std::span(sound));
  }
  // None of these throws for what a folder holds.
  const RunFacts facts = read_run_facts(local_files(), folder.path());
  run_facts_of(to_json(facts));
  const RunNotes notes = read_run_notes(local_files(), folder.path());
  if (run_notes_of(to_text(notes)) != notes)
    throw InternalError("[fuzz] other notes are read back");
  describe(run_state(local_files(), folder.path()));
  RunLog log;
  log.add(text_of(bytes.subspan(1)));
  log.columns(10);
  RunList list({folder.path()}, "");
  list.refresh();
  list.fitting("validation.loss < 0.5");
  list.summaries().dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  report_page(run_data(folder.path()));
}

std::vector<Bytes> seeds() {
  std::vector<Bytes> all;
  for (size_t i = 0; i < std::size(kFiles); ++i) {
    all.push_back(bytes_of(kFiles[i].content));
    all.back().insert(all.back().begin(), static_cast<std::byte>(i));
  }
  return all;
}

}  // namespace lockstep::fuzz
