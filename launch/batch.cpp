#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "launch/commands.h"
#include "launch/load_signals.h"
#include "launch/step_archive.h"
#include "launch/text_check.h"
#include "runtime/base/error.h"
#include "runtime/coordinator.h"
#include "runtime/elastic/socket_door.h"
#include "runtime/engine.h"
#include "runtime/server/api/api_service.h"
#include "runtime/server/batch/batch_input.h"
#include "runtime/server/batch/batch_output.h"
#include "runtime/server/batch/batch_progress.h"
#include "runtime/server/batch/batch_run.h"
#include "runtime/server/engine_client.h"
#include "runtime/server/http/router.h"
#include "runtime/server/openai/openai_routes.h"
#include "runtime/text/chat_template.h"

namespace ferry {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kBatchPatience{50};       // for an answer, between looks at signals and the engine's health
constexpr milliseconds kBarPeriod{200};          // between two states of the bar on a terminal
constexpr std::chrono::seconds kLinePeriod{10};  // between two lines elsewhere
constexpr milliseconds kLastAnswers{500};        // for calls that are given up
constexpr int64_t kAroundBodyBytes = 4096;       // of a line, beside its body
constexpr int kExitSomeFailed = 3;               // all lines are answered, some with errors
constexpr int kExitSignal = 128;                 // and the signal's number: lines are left

/// A termination signal that has come, 0 if none has. They are blocked in every thread.
int take_termination_signal() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  constexpr timespec kNoTime{0, 0};
  return std::max(sigtimedwait(&set, nullptr, &kNoTime), 0);
}

/// Calls that are open when the batch ends, for whatever reason, hear that it has before what they use is gone.
class BatchEnd {
 public:
  BatchEnd(api::ApiService& apis, Coordinator& coordinator) : apis_(apis), coordinator_(coordinator) {}
  ~BatchEnd() {
    apis_.finish_prompts(steady_clock::now());
    coordinator_.drain(milliseconds(0));
    apis_.finish_answers(kLastAnswers);
  }
  BatchEnd(const BatchEnd&) = delete;
  BatchEnd& operator=(const BatchEnd&) = delete;

 private:
  api::ApiService& apis_;
  Coordinator& coordinator_;
};

/// Tells how a batch goes on: a bar that changes in its place on a terminal, else a line now and then.
class ProgressTeller {
 public:
  ProgressTeller(const batch::BatchRun& run, const batch::BatchInput& input, const Coordinator& coordinator)
      : run_(run), input_(input), coordinator_(coordinator) {}

  void tell() {
    const auto now = steady_clock::now();
    if (now < next_) return;
    next_ = now + (is_terminal_ ? steady_clock::duration(kBarPeriod) : steady_clock::duration(kLinePeriod));
    if (now == start_) return;
    using enum batch::ProgressForm;
    std::fprintf(stderr, is_terminal_ ? "\rferry: batch: %s\033[K" : "ferry: batch: %s\n",
                 batch::describe(progress(now), is_terminal_ ? kBar : kPlain).c_str());
  }
  /// A line of its own.
  void say(const std::string& line) const {
    std::fprintf(stderr, is_terminal_ ? "\rferry: batch: %s\033[K\n" : "ferry: batch: %s\n", line.c_str());
  }
  batch::BatchProgress progress(steady_clock::time_point now) const {
    const EngineLoad load = coordinator_.load();
    return {.counts = run_.counts(),
            .input_bytes = input_.bytes(),
            .num_tokens = load.prompt_tokens + load.generated_tokens,
            .elapsed_s = std::chrono::duration<double>(now - start_).count()};
  }

 private:
  const batch::BatchRun& run_;
  const batch::BatchInput& input_;
  const Coordinator& coordinator_;
  const bool is_terminal_ = isatty(STDERR_FILENO) != 0;
  const steady_clock::time_point start_ = steady_clock::now();
  steady_clock::time_point next_ =
      start_ + (is_terminal_ ? steady_clock::duration(kBarPeriod) : steady_clock::duration(kLinePeriod));
};

/// Until all is answered, or a second signal; the first one lets those end that run. The first signal's number, 0 without any.
int answer_lines(batch::BatchRun& run, ProgressTeller& teller, const Coordinator& coordinator) {
  int first_signal = 0;
  while (run.advance(kBatchPatience)) {
    teller.tell();
    if (const std::optional<Error> failure = coordinator.failure()) throw *failure;
    const int signal = take_termination_signal();
    if (signal == 0) continue;
    if (first_signal != 0) break;
    first_signal = signal;
    run.stop_reading();
    teller.say(std::to_string(run.counts().num_running) + " lines are being finished; once more to leave them");
  }
  return first_signal;
}

void tell_found(const batch::BatchOutput& output, const std::string& name) {
  if (output.num_cut_bytes() > 0) {
    std::fprintf(stderr, "ferry: batch: the last line of %s had no end: %lld bytes of it are cut off\n", name.c_str(),
                 static_cast<long long>(output.num_cut_bytes()));
  }
  if (output.num_found() > 0)
    std::fprintf(stderr, "ferry: batch: %s has %lld lines, %lld of them errors; what they answer is left out\n", name.c_str(),
                 static_cast<long long>(output.num_found()), static_cast<long long>(output.num_failed()));
}

}  // namespace

int run_batch(const Options& options, Cluster& cluster) {
  const ServerLimits limits;
  batch::BatchInput input(options.batch.input,
                          limits.http_body_bytes + kAroundBodyBytes);  // before the weights, which take long
  batch::BatchOutput output(options.batch.output, input.fd());
  tell_found(output, options.batch.output.string());
  const std::unique_ptr<ArchiveKeeper> archive = open_step_archive(options.batch.archive);  // likewise
  api::check_settings(options.batch.api);
  check_socket_door(options.engine.elastic);
  const ChatTemplate chat_template = ChatTemplate::load(options.engine.model);
  const EngineStart start{.check = [&](const Engine& e) { check_text(e, chat_template, ""); }};
  std::optional<LoadSignals> load_signals(std::in_place, cluster.group() != nullptr);
  Engine engine(options.engine, cluster, Engine::LogitRows::kSampled, real_clock(), start);
  engine.rehearse();
  load_signals.reset();
  Coordinator coordinator(engine);
  keep_steps(coordinator, options.batch.archive, archive.get());
  const Cluster::LossWatch watch(cluster, [&](const std::string& reason) { coordinator.fail(reason); });
  CoordinatorClient client(coordinator, engine, chat_template);
  api::ApiService apis(client, api::make_settings(options.batch.api, options.engine.model.string(), client, limits));
  HttpRouter router;
  api::openai::add_openai_routes(router, apis.context());
  const BatchEnd end(apis, coordinator);
  const int64_t twice = 2 * engine.scheduler_options().max_running;
  batch::BatchRun run(router, input, output,
                      {.concurrency = options.batch.concurrency > 0 ? options.batch.concurrency : twice,
                       .limits = limits,
                       .failure = [&] { return coordinator.failure(); }});
  ProgressTeller teller(run, input, coordinator);
  const int signal = answer_lines(run, teller, coordinator);
  output.sync();
  teller.say(batch::describe(teller.progress(steady_clock::now()), batch::ProgressForm::kPlain));
  if (run.has_more()) {
    teller.say("at most " + std::to_string(run.count_left()) + " lines are left: the same command goes on with them");
    return kExitSignal + signal;
  }
  return run.counts().num_failed + output.num_failed() > 0 ? kExitSomeFailed : 0;
}

}  // namespace ferry
