#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <thread>

#include "runtime/base/error.h"
#include "tests/sim/group_run.h"
#include "tests/sim/link_run.h"
#include "tests/sim/planned_faults.h"
#include "tests/sim/seed_runner.h"
#include "tests/sim/sim_plan.h"
#include "tests/sim/workload.h"

// Plays jobs of several ranks on a simulated network, one per seed. See tests/sim/README.md.

namespace ferry::sim {
namespace {

/// What rows travel over.
enum class Over { kGroups, kLinks, kBoth };

/// A planted one, of either.
struct Bug {
  FaultyNetwork::Bug group = FaultyNetwork::Bug::kNone;
  LinkBug link = LinkBug::kNone;

  bool is_none() const { return group == FaultyNetwork::Bug::kNone && link == LinkBug::kNone; }
};

constexpr int64_t kReplayEvery = 16;  // one seed of so many is played twice

struct Arguments {
  std::string seeds;
  int64_t seed = 0;
  int jobs = 1;
  bool verbose = false;
  Over over = Over::kBoth;
  std::string bug;
  std::string faults;
  int64_t max_failures = 10;
};

const std::map<std::string, Bug>& bugs() {
  using GroupBug = FaultyNetwork::Bug;
  static const std::map<std::string, Bug> bugs = {{"", {}},
                                                  {"no-deadlines", {.group = GroupBug::kNoDeadlines}},
                                                  {"swaps-messages", {.group = GroupBug::kSwapsMessages}},
                                                  {"flips-payloads", {.group = GroupBug::kFlipsPayloads}},
                                                  {"hides-truncation", {.group = GroupBug::kHidesTruncation}},
                                                  {"masks-too-early", {.link = LinkBug::kMasksTooEarly}},
                                                  {"loses-replies", {.link = LinkBug::kLosesReplies}},
                                                  {"stale-replies", {.link = LinkBug::kStaleReplies}},
                                                  {"wrong-holder", {.link = LinkBug::kWrongHolder}}};
  return bugs;
}

/// A folder of this process's own, removed at the end.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "ferry_sim_XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make a folder " + name);
    path_ = name;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// Plays seeds of one workload in this process.
class Player {
 public:
  Player(const Workload& workload, const Arguments& arguments)
      : workload_(workload),
        over_(arguments.over),
        bug_(bugs().at(arguments.bug)),
        spec_(arguments.faults.empty() ? FaultSpec() : parse_fault_spec(arguments.faults)),
        threads_(kMaxRanks) {}

  SimResult play_seed(int64_t seed, EventLog& log) {
    const bool is_over_links = over_ == Over::kLinks || (over_ == Over::kBoth && seed % 2 != 0);
    SimPlan plan = is_over_links ? draw_link_plan(static_cast<uint64_t>(seed)) : draw_plan(static_cast<uint64_t>(seed));
    plan.drop_rate = spec_.drop_rate;
    for (const PlannedFault& fault : spec_.faults) {
      if (fault.rank.value < plan.num_ranks()) plan.planned_faults.push_back(fault);
    }
    return is_over_links ? play_over_links(plan, workload_, threads_, log, bug_.link)
                         : play_over_group(plan, workload_, threads_, log, bug_.group);
  }

  /// Plays, now and then twice; says what went wrong.
  bool check_seed(int64_t seed, SimTotals& totals) {
    EventLog log;
    SimResult result = play_seed(seed, log);
    if (seed % kReplayEvery == 0) {
      EventLog again;
      if (play_seed(seed, again).log_hash != result.log_hash) result.failures.push_back("a replay took another course");
    }
    totals.add(result);
    for (const std::string& failure : result.failures)
      std::printf("seed %lld: %s\n", static_cast<long long>(seed), failure.c_str());
    return result.failures.empty();
  }

 private:
  const Workload& workload_;
  const Over over_;
  const Bug bug_;
  const FaultSpec spec_;
  RankThreads threads_;
};

/// What fast combines answer, by calm runs.
void learn(Workload& workload) {
  RankThreads threads(kMaxWorkers + 1);
  workload.learn_answers([&](const SimPlan& plan) {
    EventLog log;
    SimResult result = play_over_group(plan, workload, threads, log);
    if (!result.failures.empty()) throw std::runtime_error("a run without faults failed: " + result.failures.front());
    return result.tokens;
  });
}

int replay(const Workload& workload, const Arguments& arguments) {
  Player player(workload, arguments);
  EventLog log(arguments.verbose ? EventLog::Echo::kStderr : EventLog::Echo::kOff);
  const SimResult result = player.play_seed(arguments.seed, log);
  for (const std::string& failure : result.failures)
    std::printf("seed %lld: %s\n", static_cast<long long>(arguments.seed), failure.c_str());
  std::printf("seed %lld: %s, %lld messages, %.3f virtual seconds, events %016llx\n", static_cast<long long>(arguments.seed),
              result.failures.empty() ? "right" : "WRONG", static_cast<long long>(result.num_messages),
              std::chrono::duration<double>(result.elapsed).count(), static_cast<unsigned long long>(result.log_hash));
  return result.failures.empty() ? EXIT_SUCCESS : EXIT_FAILURE;
}

void print_totals(const SimTotals& totals, double wall_s) {
  std::printf("%lld runs in %.1f s: %lld gave whole answers, %lld ended in named errors; %lld messages, %.0f virtual seconds\n",
              static_cast<long long>(totals.num_runs), wall_s, static_cast<long long>(totals.num_whole),
              static_cast<long long>(totals.num_errors), static_cast<long long>(totals.num_messages), totals.virtual_s);
  std::printf("errors of ranks:");
  for (int c = 0; c < SimTotals::kNumCodes; ++c) {
    const int64_t count = totals.errors_by_code[static_cast<std::size_t>(c)];
    if (count > 0) std::printf(" %s %lld", error_code_name(static_cast<ErrorCode>(c)), static_cast<long long>(count));
  }
  std::printf("\nfaults:");
  for (int k = 0; k < kNumFaultKinds; ++k) {
    std::printf(" %s %lld", fault_name(static_cast<FaultKind>(k)),
                static_cast<long long>(totals.num_faults[static_cast<std::size_t>(k)]));
  }
  if (totals.num_placements > 0)
    std::printf("\nover links: %lld placements after the first, %lld rows that were covered",
                static_cast<long long>(totals.num_placements), static_cast<long long>(totals.num_covered_rows));
  std::printf("\n");
}

int play_range(const Workload& workload, const Arguments& arguments) {
  const std::size_t colon = arguments.seeds.find(':');
  const SeedRange range{std::stoll(arguments.seeds), std::stoll(arguments.seeds.substr(colon + 1))};
  std::unique_ptr<Player> player;  // of a job's process: threads do not survive its start
  SeedRunner runner(range, arguments.jobs, [&](int64_t seed, SimTotals& totals) {
    if (player == nullptr) player = std::make_unique<Player>(workload, arguments);
    return player->check_seed(seed, totals);
  });
  const auto start = std::chrono::steady_clock::now();
  const std::vector<int64_t> failed = runner.run(arguments.max_failures);
  print_totals(runner.totals(), std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  if (!arguments.bug.empty()) {
    std::printf(failed.empty() ? "the planted bug was not noticed\n" : "the planted bug was noticed\n");
    return failed.empty() ? EXIT_FAILURE : EXIT_SUCCESS;
  }
  for (const int64_t seed : failed)
    std::printf("seed %lld FAILED; see it with --seed %lld --verbose\n", static_cast<long long>(seed),
                static_cast<long long>(seed));
  return failed.empty() ? EXIT_SUCCESS : EXIT_FAILURE;
}

int run(const Arguments& arguments) {
  const Folder folder;
  Workload workload(folder.path());
  learn(workload);
  return arguments.seeds.empty() ? replay(workload, arguments) : play_range(workload, arguments);
}

}  // namespace
}  // namespace ferry::sim

int main(int argc, char** argv) {
  using ferry::sim::Over;
  ferry::sim::Arguments arguments;
  CLI::App app("Plays jobs of several ranks on a simulated network, one per seed");
  app.add_option("--seeds", arguments.seeds, "FIRST:LAST, both played")->check([](const std::string& text) {
    const bool is_range = text.find(':') != std::string::npos && text.find_first_not_of("0123456789:") == std::string::npos;
    return is_range ? std::string() : "--seeds is '" + text + "'; allowed: FIRST:LAST";
  });
  app.add_option("--seed", arguments.seed, "one seed");
  app.add_flag("--verbose", arguments.verbose, "prints every event as it happens");
  app.add_option("--jobs", arguments.jobs, "processes")->check(CLI::Range(1, 1024));
  app.add_option("--max-failures", arguments.max_failures, "stops after so many")->check(CLI::Range(1, 1000000));
  const std::map<std::string, Over> overs = {{"groups", Over::kGroups}, {"links", Over::kLinks}, {"both", Over::kBoth}};
  app.add_option("--over", arguments.over, "what rows travel over; both: over links with odd seeds, over groups with even ones")
      ->transform(CLI::CheckedTransformer(overs));
  app.add_option("--bug", arguments.bug, "plants one; succeeds if some seed fails")->check(CLI::IsMember(ferry::sim::bugs()));
  app.add_option("--fault", arguments.faults, "what happens beside what the seed has: as ferry's --fault, and drop:P%")
      ->check([](const std::string& text) {
        try {
          ferry::sim::parse_fault_spec(text);
        } catch (const ferry::Error& error) {
          return std::string(error.what());
        }
        return std::string();
      });
  CLI11_PARSE(app, argc, argv);
  return ferry::sim::run(arguments);
}
