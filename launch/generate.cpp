#include <algorithm>
#include <array>
#include <cinttypes>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>

#include "launch/commands.h"
#include "launch/media_files.h"
#include "launch/traced_run.h"
#include "runtime/base/error.h"
#include "runtime/coordinator.h"
#include "runtime/engine.h"
#include "runtime/text/chat_template.h"
#include "runtime/text/detokenizer.h"

namespace ferry {
namespace {

/// Gathers a completion's events from the engine's thread, which it never keeps waiting; the main thread waits for them.
class Completion {
 public:
  explicit Completion(bool stream_text) : stream_text_(stream_text) {}

  void receive(const GenerateEvent& event) {
    const std::scoped_lock lock(mutex_);
    token_ids_.insert(token_ids_.end(), event.token_ids.begin(), event.token_ids.end());
    text_ += event.text;
    finished_ = event.finish_reason != FinishReason::kNone;
    if (finished_) last_ = event;
    news_.notify_one();
  }

  /// Writes the text as it comes, if it is streamed: whoever reads may take his time. Returns the last event; throws its error.
  const GenerateEvent& wait() {
    std::size_t num_written = 0;
    std::unique_lock lock(mutex_);
    while (true) {
      news_.wait(lock, [&] { return finished_ || text_.size() > num_written; });
      const std::string text = stream_text_ ? text_.substr(num_written) : std::string();
      num_written = text_.size();
      const bool is_last = finished_;
      lock.unlock();
      std::fwrite(text.data(), 1, text.size(), stdout);
      std::fflush(stdout);
      lock.lock();
      if (is_last) break;
    }
    if (last_.error) throw *last_.error;
    return last_;
  }
  const std::vector<TokenId>& token_ids() const { return token_ids_; }
  const std::string& text() const { return text_; }

 private:
  const bool stream_text_;
  std::mutex mutex_;
  std::condition_variable news_;
  bool finished_ = false;
  GenerateEvent last_;
  std::vector<TokenId> token_ids_;
  std::string text_;
};

/// Ids with one placeholder for each of `media`.
std::vector<TokenId> encode_input(const Options& options, const Engine& engine,
                                  std::span<const std::shared_ptr<const Medium>> media) {
  const GenerateOptions& o = options.generate;
  if (!o.prompt && !o.chat) return o.token_ids;
  const Tokenizer& tokenizer = engine.require_tokenizer();
  if (o.prompt) return tokenizer.encode_prompt(*o.prompt);
  using Mode = GenerateOptions::ThinkingMode;
  std::string content;
  for (const auto& medium : media) content += engine.require_media().placeholder(medium->kind);
  ChatInput chat;
  chat.messages.push_back({{"role", "user"}, {"content", content + *o.chat}});
  if (o.thinking != Mode::kDefault) chat.thinking = o.thinking == Mode::kOn;
  return tokenizer.encode(ChatTemplate::load(options.engine.model).render(chat));
}

/// A request for text or token ids; before the weights are read, so that what is wrong with it is known then.
void set_text_prompt(Request& request, const Options& options, const Engine& engine) {
  if (options.generate.has_media()) {
    check_media_files(options.generate);
    if (options.generate.chat) ChatTemplate::load(options.engine.model);
    if (options.generate.chat || options.generate.prompt) engine.require_tokenizer();
    return;
  }
  request.prompt = encode_input(options, engine, {});
  validate_request(request, engine.scheduler_options());
  if (!request.sampling.stop.empty())
    Detokenizer(engine.require_tokenizer(), request.sampling.stop, SpecialTokens::kSkip);  // refuses bad ones
}

void set_media_prompt(Request& request, const Options& options, const Engine& engine) {
  const MediaIntake& intake = engine.require_media();
  const std::vector<std::shared_ptr<const Medium>> media = read_media_files(options.generate, intake);
  MediaPrompt prompt = intake.place(encode_input(options, engine, media), media);
  request.prompt = std::move(prompt.ids);
  request.media = std::move(prompt.media);
}

struct Rates {
  double prefill_tokens_per_s = 0;
  double decode_tokens_per_s = 0;
};

Rates rates_of(const GenerateEvent& last) {
  const auto prefill_ns = static_cast<double>(last.timings.first_token_ns - last.timings.queue_ns);
  const auto decode_ns = static_cast<double>(last.timings.total_ns - last.timings.first_token_ns);
  return {.prefill_tokens_per_s = prefill_ns > 0 ? last.prompt_tokens / prefill_ns * 1e9 : 0,
          .decode_tokens_per_s = decode_ns > 0 ? (last.completion_tokens - 1) / decode_ns * 1e9 : 0};
}

/// Nothing of what took no time, such as the first token, which is the prompt's.
std::string at_rate(double tokens_per_s) {
  std::array<char, 64> text{};
  if (tokens_per_s > 0) std::snprintf(text.data(), text.size(), " at %.1f tokens/s", tokens_per_s);
  return text.data();
}

nlohmann::ordered_json expert_load_json(Engine& engine) {
  const TokenDispatcher& dispatcher = engine.dispatcher();
  nlohmann::ordered_json layers = nlohmann::ordered_json::array();
  for (int64_t l = 0; l < engine.config().num_layers(); ++l) {
    layers.push_back({{"per_rank", dispatcher.expert_load().rank_rows(l)},
                      {"per_expert", std::vector<int64_t>(dispatcher.expert_load().layer(l).begin(),
                                                          dispatcher.expert_load().layer(l).end())}});
  }
  return layers;
}

std::string two_digits(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.2f", value);
  return text.data();
}

double tokens_per_step(const DraftCount& count) {
  return count.sequence_steps > 0 ? static_cast<double>(count.tokens) / static_cast<double>(count.sequence_steps) : 1;
}

/// By place: the first draft of a step, the second, and so on.
nlohmann::ordered_json drafts_json(const DraftCount& count) {
  const auto used = std::find(count.tried.begin(), count.tried.end(), 0);
  const auto num_places = used - count.tried.begin();
  return {{"tried", std::vector<int64_t>(count.tried.begin(), used)},
          {"right", std::vector<int64_t>(count.right.begin(), count.right.begin() + num_places)},
          {"tokens_per_step", tokens_per_step(count)}};
}

void print_json(Engine& engine, const Completion& completion, const GenerateEvent& last, const DraftCount& drafts) {
  const Rates rates = rates_of(last);
  const nlohmann::ordered_json object{{"token_ids", completion.token_ids()},
                                      {"text", completion.text()},
                                      {"finish_reason", finish_reason_name(last.finish_reason)},
                                      {"prompt_tokens", last.prompt_tokens},
                                      {"completion_tokens", last.completion_tokens},
                                      {"timings",
                                       {{"queue_ms", static_cast<double>(last.timings.queue_ns) * 1e-6},
                                        {"first_token_ms", static_cast<double>(last.timings.first_token_ns) * 1e-6},
                                        {"total_ms", static_cast<double>(last.timings.total_ns) * 1e-6},
                                        {"prefill_tokens_per_s", rates.prefill_tokens_per_s},
                                        {"decode_tokens_per_s", rates.decode_tokens_per_s}}},
                                      {"drafts", drafts_json(drafts)},
                                      {"expert_workers", engine.model_info().num_expert_workers},
                                      {"balancedness", balancedness(engine.dispatcher().expert_load())},
                                      {"expert_tokens", expert_load_json(engine)}};
  std::printf("%s\n", object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str());
}

/// For checkpoints whose text nobody can read.
void print_token_ids(std::span<const TokenId> ids) {
  std::string line;
  for (const TokenId id : ids) line += (line.empty() ? "" : ",") + std::to_string(id);
  std::printf("%s", line.c_str());
}

void print_summary(Engine& engine, const GenerateEvent& last, const DraftCount& drafts) {
  const Rates rates = rates_of(last);
  const ModelInfo& info = engine.model_info();
  const std::string experts = info.num_expert_workers == 0
                                  ? "in process"
                                  : "on " + std::to_string(info.num_expert_workers) + " worker ranks (" + info.transport + ")";
  std::printf("\n");
  std::fflush(stdout);
  std::string guessed;
  if (drafts.tried[0] > 0) guessed = std::string(" (") + two_digits(tokens_per_step(drafts)) + " a step)";
  std::fprintf(stderr, "ferry: %d prompt tokens%s, %d new%s%s; experts %s, balancedness %.2f\n", last.prompt_tokens,
               at_rate(rates.prefill_tokens_per_s).c_str(), last.completion_tokens, at_rate(rates.decode_tokens_per_s).c_str(),
               guessed.c_str(), experts.c_str(), balancedness(engine.dispatcher().expert_load()));
}

}  // namespace

int run_generate(const Options& options, Cluster& cluster) {
  const std::filesystem::path& trace = options.engine.trace;
  Request request;
  request.sampling = options.generate.sampling;
  const EngineStart start{.check = [&](const Engine& e) { set_text_prompt(request, options, e); }};
  Engine engine(options.engine, cluster, Engine::LogitRows::kSampled, real_clock(), start);
  Completion completion(!options.generate.json);
  Coordinator coordinator(engine);
  const Cluster::LossWatch watch(cluster, [&](const std::string& reason) { coordinator.fail(reason); });
  if (!trace.empty()) coordinator.between_steps([&](Engine& e) { start_trace(e, options); });
  request.arrival = std::chrono::steady_clock::now();
  if (options.generate.has_media()) set_media_prompt(request, options, engine);
  coordinator.submit(std::move(request), [&](const GenerateEvent& event) { completion.receive(event); });
  const GenerateEvent& last = completion.wait();
  std::optional<Capture> capture;
  if (!trace.empty()) coordinator.between_steps([&](Engine& e) { capture = finish_trace(e); });
  if (options.generate.json) {
    print_json(engine, completion, last, coordinator.load().drafts);
  } else {
    if (engine.tokenizer() == nullptr) print_token_ids(completion.token_ids());
    print_summary(engine, last, coordinator.load().drafts);
  }
  if (capture) write_trace(trace, std::move(*capture));
  return 0;
}

}  // namespace ferry
