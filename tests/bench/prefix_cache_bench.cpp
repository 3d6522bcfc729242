#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <optional>
#include <random>

#include "runtime/base/check.h"
#include "runtime/expert_worker.h"
#include "runtime/options/engine_options.h"
#include "tests/support/served_answers.h"

// What the prefix cache gains and costs, alone or under mpirun:
//
// - a chat of many turns, each of which repeats all before it: the time to a turn's first token, and that of as many new tokens
//   without a past;
// - sessions on one system prompt, one after the other and all at once;
// - with --prefix-cache-disk, chats that take turns, of which memory should have no room for all: the time to a turn's first
//   token with the file and without it;
// - prompts that have nothing in common, with the cache and without in turn: what looking, keeping and saving cost.
//
// First of all every answer with the cache is compared, tokens and logits to the byte, with one without.

namespace {

using ferry::Engine;
using ferry::Request;
using ferry::TokenId;
using ferry::test::Answer;
using ferry::test::Server;
using ferry::test::without_cache;

struct Sizes {
  int64_t turns = 20, question_tokens = 60, answer_tokens = 40;
  int64_t sessions = 32, system_tokens = 1024;
  int64_t chats = 6;
  int64_t cold_prompts = 24, cold_tokens = 512, decode_tokens = 128;
};

/// Milliseconds of a clock, or with `is_cpu_time` of this process's threads, which others on the machine hardly change.
double now_ms(bool is_cpu_time) {
  timespec time{};
  clock_gettime(is_cpu_time ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return 1e3 * static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_nsec);
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

class Bench {
 public:
  Bench(Engine& engine, const Sizes& sizes, bool is_cpu_time)
      : engine_(engine),
        sizes_(sizes),
        is_cpu_time_(is_cpu_time),
        cached_(engine.scheduler_options()),
        cold_(without_cache(cached_)) {}

  void run(const std::vector<std::string>& parts) {
    const auto is_wanted = [&](const char* part) { return parts.empty() || std::ranges::count(parts, part) > 0; };
    verify();
    if (is_wanted("chat")) chat();
    if (is_wanted("sessions")) sessions();
    if (is_wanted("chats")) chats();
    if (is_wanted("strangers")) strangers();
    if (is_wanted("decode")) decode();
  }

 private:
  struct Timed {
    Answer answer;
    double first_token_ms = 0, ms = 0;
  };

  std::vector<TokenId> text(int64_t num_tokens) {
    std::vector<TokenId> tokens(static_cast<std::size_t>(num_tokens));
    for (TokenId& token : tokens) token = static_cast<TokenId>(100 + random_() % 5000);
    return tokens;
  }
  Request request(std::vector<TokenId> prompt, int64_t max_tokens, std::vector<int64_t> starts = {}) {
    Request request;
    request.id = std::to_string(num_requests_++);
    request.prompt = std::move(prompt);
    request.cache_hints = std::move(starts);
    request.sampling.max_tokens = static_cast<int32_t>(max_tokens);
    request.sampling.ignore_eos = true;
    return request;
  }
  Timed time(Server& server, const Request& request) {
    Timed timed;
    const double begin = now_ms(is_cpu_time_);
    const auto since = [&] { return now_ms(is_cpu_time_) - begin; };
    server.after_first_token = [&] { timed.first_token_ms = since(); };
    timed.answer = server.answer(request);
    timed.ms = since();
    return timed;
  }

  /// A chat's turns as requests: history, question, then what the model is asked to begin.
  template <class Ask>
  void for_each_turn(Ask ask) {
    std::vector<TokenId> history = text(sizes_.system_tokens / 4);
    std::vector<int64_t> starts = {0};
    for (int64_t turn = 0; turn < sizes_.turns; ++turn) {
      starts.push_back(std::ssize(history));
      const std::vector<TokenId> question = text(sizes_.question_tokens);
      history.insert(history.end(), question.begin(), question.end());
      starts.push_back(std::ssize(history));
      std::vector<TokenId> prompt = history;
      prompt.insert(prompt.end(), {5, 6, 7});
      const Answer answer = ask(turn, request(prompt, sizes_.answer_tokens, starts));
      history = std::move(prompt);
      history.insert(history.end(), answer.tokens.begin(), answer.tokens.end());
    }
  }

  void verify() {
    Server with(engine_, cached_), without(engine_, cold_);
    std::vector<std::pair<Request, Answer>> answers;
    const auto keep = [&](Request asked) {
      answers.emplace_back(asked, with.answer(asked));
      return answers.back().second;
    };
    for_each_turn([&](int64_t, Request asked) { return keep(std::move(asked)); });
    const std::vector<TokenId> common = text(200);
    for (int64_t n = 1; n <= 260; n += 37) {
      std::vector<TokenId> prompt(common.begin(), common.begin() + std::min<int64_t>(n, 150));
      const std::vector<TokenId> rest = text(std::max<int64_t>(n - 150, 0));
      prompt.insert(prompt.end(), rest.begin(), rest.end());
      keep(request(prompt, 4));
      keep(request(prompt, 4));
    }
    int64_t num_cached = 0;
    for (const auto& [asked, answer] : answers) {
      FERRY_CHECK(without.answer(asked) == answer) << "a prompt of " << asked.prompt.size() << " tokens, of which "
                                                   << answer.num_cached << " were there, got another answer";
      num_cached += answer.num_cached;
    }
    FERRY_CHECK(num_cached > 0) << "nothing was shared";
    std::printf("verified: %zu answers, of %lld cached tokens, are the bytes that they are without\n", answers.size(),
                static_cast<long long>(num_cached));
  }

  void chat() {
    Server with(engine_, cached_), without(engine_, cold_);
    with.is_timed = without.is_timed = true;
    std::vector<double> ratios, computed_ratios, gains;
    for_each_turn([&](int64_t turn, const Request& asked) {
      const Timed warm = time(with, asked), cold = time(without, asked);
      if (turn == 0) return warm.answer;
      const int64_t num_prompt = std::ssize(asked.prompt), num_computed = num_prompt - warm.answer.num_cached;
      const int64_t num_new = sizes_.question_tokens + sizes_.answer_tokens + 3;
      const auto alone = [&](int64_t n) { return time(without, request(text(n), 1)).first_token_ms; };
      ratios.push_back(warm.first_token_ms / alone(num_new));
      computed_ratios.push_back(warm.first_token_ms / alone(num_computed));
      gains.push_back(cold.first_token_ms / warm.first_token_ms);
      std::printf("turn %2lld: %5lld tokens, %5lld cached; first token %7.2f ms, without cache %7.2f ms\n",
                  static_cast<long long>(turn), static_cast<long long>(num_prompt),
                  static_cast<long long>(warm.answer.num_cached), warm.first_token_ms, cold.first_token_ms);
      return warm.answer;
    });
    std::printf(
        "chat: medians of %zu turns: first token %.2f x that of the new tokens alone, %.2f x that of the computed ones "
        "alone; %.1f x as fast as without (last turn %.1f x)\n",
        ratios.size(), median(ratios), median(computed_ratios), median(gains), gains.back());
  }

  void sessions() {
    const std::vector<TokenId> system = text(sizes_.system_tokens);
    std::vector<Request> asked;
    for (int64_t i = 0; i < sizes_.sessions; ++i) {
      std::vector<TokenId> prompt = system;
      const std::vector<TokenId> question = text(sizes_.question_tokens);
      prompt.insert(prompt.end(), question.begin(), question.end());
      asked.push_back(request(prompt, 8, {0, sizes_.system_tokens, std::ssize(prompt) - 3}));
    }
    const auto one_by_one = [&](const ferry::SchedulerOptions& limits) {
      Server server(engine_, limits);
      server.is_timed = true;
      std::vector<double> first_token_ms;
      for (const Request& one : asked) first_token_ms.push_back(time(server, one).first_token_ms);
      return median(first_token_ms);
    };
    const auto together = [&](const ferry::SchedulerOptions& limits) {
      Server server(engine_, limits);
      server.is_timed = true;
      const double begin = now_ms(is_cpu_time_);
      server.answer(asked);
      return now_ms(is_cpu_time_) - begin;
    };
    const double warm = one_by_one(cached_), cold = one_by_one(cold_);
    std::printf(
        "%lld sessions on %lld common tokens, one by one: median to the first token %.2f ms, without cache %.2f ms (%.1f x)\n",
        static_cast<long long>(sizes_.sessions), static_cast<long long>(sizes_.system_tokens), warm, cold, cold / warm);
    const double all_warm = together(cached_), all_cold = together(cold_);
    std::printf("all at once: %.1f ms, without cache %.1f ms (%.1f x)\n", all_warm, all_cold, all_cold / all_warm);
  }

  void chats() {
    if (cached_.prefix_cache.file.num_pages == 0) return;
    ferry::SchedulerOptions memory_alone = cached_;
    memory_alone.prefix_cache.file = {};
    for (const bool has_file : {true, false}) {
      const double begin = now_ms(false);
      Server server(engine_, has_file ? cached_ : memory_alone);
      const std::vector<double> first_token_ms = time_chats(server);
      const ferry::PrefixCacheLoad load = server.load().prefix_cache;
      std::printf(
          "%lld chats by turns, %s: median to the first token %.2f ms, %lld of %lld tokens cached, %lld by the file; "
          "%.1f MB read, %.1f MB there; all %.1f ms\n",
          static_cast<long long>(sizes_.chats), has_file ? "with the file" : "without it", median(first_token_ms),
          static_cast<long long>(load.num_cached_tokens), static_cast<long long>(load.num_query_tokens),
          static_cast<long long>(load.num_file_tokens), 1e-6 * static_cast<double>(load.file_read_bytes),
          1e-6 * static_cast<double>(load.file_bytes), now_ms(false) - begin);
    }
  }

  /// Of all turns but the first ones, the same for each server.
  std::vector<double> time_chats(Server& server) {
    server.is_timed = true;
    random_.seed(2);
    std::vector<std::vector<TokenId>> histories;
    for (int64_t i = 0; i < sizes_.chats; ++i) histories.push_back(text(sizes_.system_tokens));
    std::vector<double> first_token_ms;
    for (int64_t turn = 0; turn < sizes_.turns; ++turn) {
      for (std::vector<TokenId>& history : histories) {
        const int64_t question = std::ssize(history);
        const std::vector<TokenId> asked = text(sizes_.question_tokens);
        history.insert(history.end(), asked.begin(), asked.end());
        std::vector<TokenId> prompt = history;
        prompt.insert(prompt.end(), {5, 6, 7});
        const Timed timed = time(server, request(prompt, sizes_.answer_tokens, {0, question, std::ssize(history)}));
        if (turn > 0) first_token_ms.push_back(timed.first_token_ms);
        history = std::move(prompt);
        history.insert(history.end(), timed.answer.tokens.begin(), timed.answer.tokens.end());
      }
    }
    return first_token_ms;
  }

  /// Medians of pairs, since the machine's speed moves.
  void strangers() {
    Server with(engine_, cached_), without(engine_, cold_);
    with.is_timed = without.is_timed = true;
    std::vector<double> ratios;
    for (int64_t i = 0; i < sizes_.cold_prompts; ++i) {
      const std::vector<TokenId> prompt = text(sizes_.cold_tokens);
      const std::vector<int64_t> starts = {0, sizes_.cold_tokens / 4, sizes_.cold_tokens / 2, sizes_.cold_tokens - 5};
      const Request one = request(prompt, 1, starts);
      const bool warm_first = i % 2 == 0;
      const double first = time(warm_first ? with : without, one).ms, second = time(warm_first ? without : with, one).ms;
      ratios.push_back(warm_first ? first / second : second / first);
    }
    std::printf(
        "prompts of %lld tokens without anything in common: %.3f x the time without cache (median of %zu pairs; 3 states "
        "saved each)\n",
        static_cast<long long>(sizes_.cold_tokens), median(ratios), ratios.size());
  }

  void decode() {
    Server with(engine_, cached_), without(engine_, cold_);
    with.is_timed = without.is_timed = true;
    std::vector<double> ratios;
    for (int64_t i = 0; i < 9; ++i) {
      std::vector<Request> asked;
      for (int64_t s = 0; s < cached_.max_running; ++s) asked.push_back(request(text(70), sizes_.decode_tokens));
      const auto run = [&](Server& server) {  // from the step on that computed all prompts
        double begin = 0;
        server.after_first_token = [&] { begin = now_ms(is_cpu_time_); };
        server.answer(asked);
        return now_ms(is_cpu_time_) - begin;
      };
      const bool warm_first = i % 2 == 0;
      const double first = run(warm_first ? with : without), second = run(warm_first ? without : with);
      ratios.push_back(warm_first ? first / second : second / first);
    }
    std::printf("decode, %lld sequences: %.3f x the time without cache (median of %zu pairs)\n",
                static_cast<long long>(cached_.max_running), median(ratios), ratios.size());
  }

  Engine& engine_;
  const Sizes sizes_;
  const bool is_cpu_time_;
  const ferry::SchedulerOptions cached_, cold_;
  std::mt19937 random_{1};
  int64_t num_requests_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  ferry::EngineOptions options;
  options.prefix_cache_bytes = int64_t{256} << 20;
  options.memory_bytes = int64_t{512} << 20;
  Sizes sizes;
  std::vector<std::string> parts;
  bool is_quick = false, is_cpu_time = false;
  CLI::App app("What the prefix cache gains and costs.");
  ferry::add_engine_options(app, options);
  ferry::add_speculation(app, options);
  ferry::add_prefix_cache(app, options);
  app.add_flag("--quick", is_quick, "tiny sizes, to see that it works");
  app.add_option("--parts", parts, "chat, sessions, chats, strangers, decode; default all")
      ->check(CLI::IsMember({"chat", "sessions", "chats", "strangers", "decode"}));
  app.add_option("--turns", sizes.turns, "of the chat; default 20");
  app.add_option("--chats", sizes.chats, "that take turns; default 6");
  app.add_option("--system-tokens", sizes.system_tokens, "with which they begin; default 1024");
  app.add_option("--question-tokens", sizes.question_tokens, "of a turn; default 60");
  app.add_flag("--cpu-time", is_cpu_time, "measure what the coordinator's threads compute, not what passes; with --threads 1");
  CLI11_PARSE(app, argc, argv);
  if (is_quick) {
    sizes = {.turns = 3,
             .question_tokens = 20,
             .answer_tokens = 10,
             .sessions = 3,
             .system_tokens = 130,
             .chats = 3,
             .cold_prompts = 2,
             .cold_tokens = 200,
             .decode_tokens = 4};
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  ferry::Cluster cluster(options);
  if (!cluster.is_coordinator()) return ferry::run_expert_worker(options, cluster);
  Engine engine(options, cluster);
  Bench(engine, sizes, is_cpu_time).run(parts);
  return 0;
}
