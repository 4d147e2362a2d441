#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/lockstep/command.h"
#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/base/os/file.h"
#include "lockstep/runs/sources/text_source.h"
#include "lockstep/storage/s3_files.h"
#include "lockstep/train/evaluation/evaluation.h"

namespace lockstep::command {
namespace {

struct GenerateArguments {
  std::string model, prompt, prompt_file;
  int64_t length = 256, top_k = 0, context = 0, seed = 0;
  double temperature = 1, top_p = 1;
  int threads = 0;
  bool json = false;
};

// The most steps for which the network has positions; 0: it has no such layer.
int64_t positions_of(const Network& network) {
  const auto description = network.to_json();
  int64_t most = 0;
  for (const auto& layer : description["layers"]) {
    if (layer["type"] != "position_embedding") continue;
    const auto own = layer["positions"].get<int64_t>();
    most = most == 0 ? own : std::min(most, own);
  }
  return most;
}

int64_t context_for(const Model& model, int64_t wanted) {
  const int64_t positions = positions_of(model.network);
  if (wanted == 0) return positions > 0 ? positions : model.preparation.window_length;
  if (positions == 0 || wanted <= positions) return wanted;
  throw InvalidArgument("[generate] the network has " + counted(positions, "position") +
                            ", so it cannot see " + counted(wanted, "token"),
                        "set --context to at most " + std::to_string(positions));
}

std::string prompt_of(const GenerateArguments& a) {
  if (a.prompt_file.empty()) return a.prompt;
  return read_text(storage::files_of(a.prompt_file), a.prompt_file);
}

// The text of tokens as they are made.
class TextStream {
 public:
  TextStream(const Vocabulary& vocabulary, int32_t last) : vocabulary_(vocabulary), last_(last) {}
  // What one more token adds: words are set apart from the one before.
  std::string next(int32_t token) {
    const std::string before = vocabulary_.decode(std::span(&last_, 1));
    const int32_t both[] = {last_, token};
    last_ = token;
    return vocabulary_.decode(both).substr(before.size());
  }

 private:
  const Vocabulary& vocabulary_;
  int32_t last_;
};

int generate_command(const GenerateArguments& a) {
  Model model = open_model(a.model);
  require_finite(model.network, a.model);
  const Vocabulary vocabulary = vocabulary_of(model);
  const std::string prompt = prompt_of(a);
  const std::vector<int32_t> begin =
      vocabulary.encode(prompt, a.prompt_file.empty() ? "the prompt" : a.prompt_file);
  TextStream stream(vocabulary, begin.empty() ? 0 : begin.back());
  std::string text;
  bool first = true;
  const std::vector<int32_t> tokens = generate(model.network, begin,
                                               {.length = a.length,
                                                .context = context_for(model, a.context),
                                                .temperature = a.temperature,
                                                .top_k = a.top_k,
                                                .top_p = a.top_p,
                                                .seed = static_cast<uint64_t>(a.seed),
                                                .threads = a.threads},
                                               [&](int32_t token) {
                                                 const std::string more = stream.next(token);
                                                 text += more;
                                                 if (!a.json) print(first ? prompt + more : more);
                                                 first = false;
                                                 return true;
                                               });
  if (a.json) {
    print_json({{"prompt", prompt}, {"text", text}, {"tokens", tokens}});
  } else {
    print(first ? prompt + "\n" : "\n");
  }
  return 0;
}

std::string temperature_problem(const std::string& value) {
  return value.starts_with('-') ? "a temperature is 0 or more" : "";
}

}  // namespace

void add_generate(Commands& commands) {
  auto a = std::make_shared<GenerateArguments>();
  Subcommand sub = commands.add(
      "generate", "Continue a text with a network that has learned one",
      "Prints the prompt and what follows, token by token. The text depends on the model, the "
      "prompt, the options and the seed alone, not on the threads. The network sees at most as "
      "many tokens as it has positions, or as the training's examples had; when it has seen as "
      "many, it goes on from the last half of them.",
      {{"lockstep generate runs/gpt-1 --prompt \"Once upon\"", "256 tokens"},
       {"lockstep generate runs/gpt-1 --prompt A --temperature 0.8 --top-k 20 --seed 3",
        "another text, from likelier tokens"},
       {"lockstep generate runs/gpt-1 --prompt-file start.txt --temperature 0",
        "always the likeliest token"}},
      [a] { return generate_command(*a); });
  sub.add_option("model", a->model, "Model file, or the folder of a run")
      .required()
      .type_name("MODEL");
  const Option prompt =
      sub.add_option("--prompt", a->prompt, "The begin of the text").type_name("TEXT");
  sub.add_option("--prompt-file", a->prompt_file, "A file with the begin of the text")
      .type_name("FILE")
      .not_empty()
      .excludes(prompt);
  sub.add_option("--length", a->length, "Tokens to generate (default: 256)")
      .type_name("N")
      .not_negative();
  sub.add_option("--temperature", a->temperature,
                 "Below 1 likely tokens become likelier, above 1 less likely; 0: always the "
                 "likeliest (default: 1)")
      .type_name("T")
      .check(temperature_problem);
  sub.add_option("--top-k", a->top_k, "Draw from the K likeliest tokens; 0: from all (default: 0)")
      .type_name("K")
      .not_negative();
  sub.add_option("--top-p", a->top_p,
                 "Draw from the likeliest tokens that have this probability together (default: 1)")
      .type_name("P")
      .share();
  sub.add_option("--seed", a->seed, "Seed of the draws (default: 0)").type_name("N").not_negative();
  sub.add_option(
         "--context", a->context,
         "The most tokens of the text that the network sees (default: its positions, or the "
         "length of the training's examples)")
      .type_name("N")
      .not_negative();
  sub.add_option("--threads", a->threads,
                 "Threads that share the large products of a token (default: one for each "
                 "processor, at most 8)")
      .type_name("N")
      .range(1, 1024);
  sub.add_flag("--json", a->json, "Print one JSON object with prompt, text and tokens at the end");
}

}  // namespace lockstep::command
