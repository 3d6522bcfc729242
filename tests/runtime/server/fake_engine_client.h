#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "runtime/base/error.h"
#include "runtime/expert_record.h"
#include "runtime/grammar/grammar_engine.h"
#include "runtime/server/engine_client.h"
#include "runtime/text/chat_template.h"
#include "runtime/worker_record.h"
#include "tests/support/eventually.h"
#include "tests/support/source_folder.h"

namespace ferry::test {

/// An engine that does what the test says: it keeps the sinks and hands out events when told to.
class FakeEngineClient : public EngineClient {
 public:
  FakeEngineClient() {
    info_.name = "fake";
    info_.architecture = "FakeForCausalLM";
    info_.dtype = DType::kF32;
    info_.vocab_size = 1009;
    info_.context_length = 77;
    info_.num_expert_workers = 2;
    info_.transport = "local";
    info_.generation.stop_token_ids = {3, 5};
    info_.generation.temperature = 0.7;
    ExpertLoad load(2, 4);
    load.add(0, 1, 3);
    load.add(1, 2, 2);
    experts_.take(two_ranks(), load);
  }

  PromptBounds prompt_bounds() const override {
    return {.max_tokens = 100'000, .max_bytes = 300'000, .allowed = "at most 100000, by --memory"};
  }
  std::vector<TokenId> encode_text(std::string_view text, const std::function<void()>& check_in) const override {
    if (text == kEndlessText) ++num_endless_;
    while (text == kEndlessText) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      check_in();
    }
    return {text.begin(), text.end()};
  }
  /// What is asked for thinking (0: nothing, 1: on, 2: off) and the contents of all messages.
  std::vector<TokenId> encode_chat(const ChatInput& chat, const std::function<void()>&) const override {
    std::vector<TokenId> ids = {!chat.thinking ? 0 : *chat.thinking ? 1 : 2};
    for (const auto& message : chat.messages) {
      const auto role = message.at("role").get<std::string>();
      if (role != "user") throw_invalid("role '" + role + "' is unknown, allowed is user");
      const auto content = message.at("content").get<std::string>();
      ids.insert(ids.end(), content.begin(), content.end());
    }
    return ids;
  }
  const Tokenizer& tokenizer() const override {
    if (!has_tokenizer_) throw Error(ErrorCode::kFailedPrecondition, "text needs a tokenizer: there is none");
    static const Tokenizer demo = Tokenizer::load(source_folder() / "launch" / "demo");
    return demo;
  }
  bool has_tokenizer() const override { return has_tokenizer_; }
  /// Before anybody asks for anything.
  void lose_tokenizer() { has_tokenizer_ = false; }
  GrammarEngine& grammars() override { return grammars_; }
  const MediaIntake& media() const override {
    throw Error(ErrorCode::kFailedPrecondition, "pictures and videos cannot be taken: there is no tower");
  }
  RequestNumber submit(Request request, EventSink sink) override {
    const std::lock_guard lock(mutex_);
    if (refusal_ && num_taken_before_refusal_-- <= 0) throw *refusal_;
    if (request.id.empty()) request.id = "made-up";
    request.number = RequestNumber{++num_submitted_};
    last_ = request;
    std::string key = request.id;
    for (int k = 1; request.siblings != nullptr && open_.count(key) > 0; ++k) key = request.id + "#" + std::to_string(k);
    open_[key] = {request, std::move(sink)};
    changed_.notify_all();
    return request.number;
  }
  bool abort(RequestNumber number) override {
    return abort_where([&](const Request& request) { return request.number == number; });
  }
  bool abort(const std::string& owner, const std::string& request_id) override {
    return abort_where([&](const Request& request) { return request.owner == owner && request.id == request_id; });
  }
  EngineLoad load() const override {
    EngineLoad load;
    load.running_requests = 3;
    load.max_running_requests = 5;
    load.max_waiting_requests = 11;
    load.balancedness = 0.5;
    load.prefix_cache.num_cached_tokens = 64;
    load.prefix_cache.misses[static_cast<std::size_t>(CacheMiss::kNoSnapshot)] = 2;
    return load;
  }
  std::optional<Error> failure() const override {
    const std::lock_guard lock(mutex_);
    return failure_;
  }
  /// Two workers, of which the second is lost, or gone.
  WorkerReport workers() const override {
    WorkerReport report;
    const WorkerState second = is_second_gone_ ? WorkerState::kGone : WorkerState::kMasked;
    report.workers = {{.rank = 1, .state = WorkerState::kHealthy, .changed_s = 1.5, .rows = 40, .speed = 1.2},
                      {.rank = 2, .state = second, .reason = "rank 2 left", .changed_s = 2.5, .rows = 30}};
    report.changes[static_cast<std::size_t>(WorkerState::kHealthy)] = 2;
    report.changes[static_cast<std::size_t>(WorkerState::kMasked)] = 1;
    report.covered = {.by_workers = 5, .by_coordinator = 6};
    report.expert_cost = {.fixed = 9, .per_row = 1};
    report.kept_bytes = 7;
    return report;
  }
  void let_second_worker_go() { is_second_gone_ = true; }
  /// A step of two layers with four experts, those of two ranks.
  const ExpertRecord& experts() const override { return experts_; }
  const ModelInfo& model_info() const override { return info_; }
  /// What it was given is kept; it is refused as requests are, and else there at once, or with epoch 0 never.
  uint32_t set_placement(const GivenPlacement& given, uint32_t epoch, const std::function<bool()>& is_given_up) override {
    {
      const std::lock_guard lock(mutex_);
      if (refusal_) throw *refusal_;
      given_ = given;
    }
    if (epoch != 0) return epoch + 1;
    ++num_placements_waited_for_;
    while (!is_given_up()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    --num_placements_waited_for_;
    throw Error(ErrorCode::kCancelled, "it was given up");
  }
  GivenPlacement given() const {
    const std::lock_guard lock(mutex_);
    return given_;
  }

  void fail(const Error& error) {
    const std::lock_guard lock(mutex_);
    failure_ = error;
  }
  /// Takes `num_taken` requests more, and refuses all others.
  void refuse(const Error& error, int num_taken = 0) {
    const std::lock_guard lock(mutex_);
    refusal_ = error;
    num_taken_before_refusal_ = num_taken;
  }
  /// The request `id` (the only one if empty), once it has arrived.
  Request wait_for_request(const std::string& id = "") {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kTestLimit, [&] { return id.empty() ? !open_.empty() : open_.count(id) > 0; }))
        << "request '" << id << "' did not come; " << open_.size() << " others are open";
    return last_;
  }
  /// The open request `id`.
  Request open_request(const std::string& id) const {
    const std::lock_guard lock(mutex_);
    return open_.at(id).request;
  }
  bool wait_for_abort(const std::string& id) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kTestLimit,
                             [&] { return std::find(aborted_.begin(), aborted_.end(), id) != aborted_.end(); });
  }
  void send(const std::string& id, const GenerateEvent& event) {
    EventSink sink;
    {
      const std::lock_guard lock(mutex_);
      const auto open = open_.find(id);
      if (open == open_.end()) {
        ADD_FAILURE() << "request " << id << " is not open";
        return;
      }
      sink = open->second.sink;
      if (event.finish_reason != FinishReason::kNone) open_.erase(id);
    }
    if (event.finish_reason == FinishReason::kNone) return sink(event);
    GenerateEvent named = event;
    named.request_id = id;
    sink(named);
  }

  /// Whether a request with this id is open or was.
  bool has_seen(const std::string& id) const {
    const std::lock_guard lock(mutex_);
    return open_.count(id) > 0 || std::find(aborted_.begin(), aborted_.end(), id) != aborted_.end();
  }

  /// Callers that wait for a placement that never comes.
  int num_placements_waited_for() const { return num_placements_waited_for_; }
  /// Prompts whose making does not end by itself, so far.
  int num_endless() const { return num_endless_; }
  static constexpr const char* kEndlessText = "endless";

 private:
  struct Open {
    Request request;
    EventSink sink;
  };

  template <class Predicate>
  bool abort_where(Predicate&& is_meant) {
    const std::lock_guard lock(mutex_);
    bool found = false;
    for (const auto& [key, open] : open_) {
      if (!is_meant(open.request)) continue;
      aborted_.push_back(key);
      found = true;
    }
    changed_.notify_all();
    return found;
  }

  static ExpertPlacement two_ranks() {
    const Rank ranks[] = {{1}, {2}};
    return ExpertPlacement::contiguous(2, 4, ranks);
  }

  bool has_tokenizer_ = true;
  ModelInfo info_;
  ExpertRecord experts_{two_ranks(), ExpertLoad(2, 4)};
  GrammarEngine grammars_{tokenizer(), info_.generation.stop_token_ids};
  mutable std::atomic<int> num_endless_ = 0;
  std::atomic<int> num_placements_waited_for_ = 0;
  std::atomic<bool> is_second_gone_{false};
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Open> open_;  // by request id; of siblings that share it the second one by "ID#1", and so on
  uint64_t num_submitted_ = 0;
  std::vector<std::string> aborted_;
  std::optional<Error> refusal_, failure_;
  int num_taken_before_refusal_ = 0;
  Request last_;
  GivenPlacement given_;
};

inline GenerateEvent some_tokens(std::vector<TokenId> ids, const std::string& text) {
  GenerateEvent event;
  event.token_ids = std::move(ids);
  event.text = text;
  return event;
}

inline GenerateEvent last_event(FinishReason reason) {
  GenerateEvent event;
  event.finish_reason = reason;
  event.prompt_tokens = 2;
  event.completion_tokens = 4;
  event.cached_tokens = 1;
  event.timings = {1'000, 2'000'000, 3'000'999};
  return event;
}

}  // namespace ferry::test
