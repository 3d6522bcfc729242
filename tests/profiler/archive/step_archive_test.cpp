#include "profiler/archive/step_archive.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "profiler/archive/archive_query.h"
#include "profiler/archive/joined_steps.h"
#include "profiler/report/timeline/report_input.h"
#include "runtime/base/error.h"
#include "tests/profiler/archive/kept_steps.h"
#include "tests/support/draws.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_folder.h"

namespace ferry {
namespace {

namespace fs = std::filesystem;
using test::make_kept_step;

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kBegin = int64_t{1'800'000'000} * kSecond;
constexpr int64_t kRoom = int64_t{64} << 20;

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}
void write(const fs::path& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

std::vector<int64_t> steps_of(const std::vector<SegmentEntry>& entries) {
  std::vector<int64_t> steps;
  for (const SegmentEntry& entry : entries) steps.push_back(entry.facts.step);
  return steps;
}

class StepArchiveTest : public testing::Test {
 protected:
  fs::path path() const { return folder_.path() / "archive"; }
  void fill(int num_steps) {
    StepArchive archive(path(), kRoom, kBegin);
    for (int i = 0; i < num_steps; ++i) archive.add(make_kept_step(100 * i, kBegin + i * kSecond), kBegin + i * kSecond);
  }
  void fill_with(const KeptStep& kept) { StepArchive(path(), kRoom, kBegin).add(kept, kBegin); }
  int count_half_written() const {
    int count = 0;
    for (const auto& file : fs::directory_iterator(path()))
      count += file.path().string().find(".tmp.") != std::string::npos ? 1 : 0;
    return count;
  }
  fs::path first_segment() const { return path() / read_archive(path()).front().file; }

 private:
  test::TempFolder folder_;
};

TEST_F(StepArchiveTest, WhatWasAddedIsReadAsItWas) {
  const KeptStep kept = make_kept_step(300, kBegin, KeptFor::kLong, 0.25);
  {
    StepArchive archive(path(), kRoom, kBegin);
    archive.add(kept, kBegin);
  }
  const std::vector<SegmentEntry> entries = read_archive(path());
  ASSERT_EQ(entries.size(), 1U);
  const SegmentEntry& entry = entries.front();
  EXPECT_EQ(entry.time_ns, kBegin);
  EXPECT_EQ(entry.why, KeptFor::kLong);
  EXPECT_EQ(entry.facts.step, 300);
  EXPECT_EQ(entry.facts.seconds, 0.25);
  EXPECT_EQ(entry.facts.num_keys, 40);
  EXPECT_EQ(entry.bytes, static_cast<int64_t>(fs::file_size(path() / entry.file)));
  const Capture capture = read_segment(path() / entry.file);
  CaptureInfo info = kept.capture.info;
  info.selection = {{"long", 1}};
  EXPECT_EQ(encode_capture_info(capture.info), encode_capture_info(info));
  ASSERT_EQ(capture.ranks.size(), 3U);
  for (std::size_t r = 0; r < 3; ++r)
    EXPECT_EQ(encode_rank_capture(capture.ranks[r]), encode_rank_capture(kept.capture.ranks[r]));
}

TEST_F(StepArchiveTest, AStepIsKeptOnceForAReason) {
  StepArchive archive(path(), kRoom, kBegin);
  archive.add(make_kept_step(300, kBegin), kBegin);
  const int64_t num_bytes = archive.num_bytes();
  archive.add(make_kept_step(300, kBegin), kBegin);
  EXPECT_EQ(archive.entries().size(), 1U);
  EXPECT_EQ(archive.num_bytes(), num_bytes);
  archive.add(make_kept_step(300, kBegin, KeptFor::kLong), kBegin);
  EXPECT_EQ(archive.entries().size(), 2U) << "for another reason it is kept again";
  EXPECT_EQ(read_archive(path()).size(), 2U);
}

TEST_F(StepArchiveTest, AStepThatWouldCostManyOthersIsRefusedInALine) {
  StepArchive archive(path(), 4000, kBegin);
  test::expect_error([&] { archive.add(make_kept_step(300, kBegin), kBegin); }, ErrorCode::kResourceExhausted,
                     {"step 300", "bytes; allowed: up to 1000"});
  EXPECT_TRUE(archive.entries().empty());
  EXPECT_TRUE(read_archive(path()).empty());
}

TEST_F(StepArchiveTest, AHeadMayBeLongerThanTheFirstLook) {
  KeptStep kept = make_kept_step(300, kBegin);
  kept.capture.info.expert_rank.assign(4096, 0);
  for (std::vector<int64_t>& tokens : kept.capture.info.expert_tokens) tokens.assign(4096, 7);
  {
    StepArchive archive(path(), kRoom, kBegin);
    archive.add(kept, kBegin);
  }
  fs::remove(path() / "index.jsonl");
  ASSERT_EQ(steps_of(read_archive(path())), std::vector<int64_t>{300});
  EXPECT_EQ(read_segment(first_segment()).info.expert_tokens, kept.capture.info.expert_tokens);
}

TEST_F(StepArchiveTest, SegmentsOfTheFirstFormatAreReadAsTheyWere) {
  const KeptStep kept = make_kept_step(300, kBegin);
  fill_with(kept);
  const fs::path segment = first_segment();
  const std::string packed = read(segment);
  uint32_t head_bytes = 0;
  std::memcpy(&head_bytes, packed.data() + 12, sizeof head_bytes);
  std::string plain = packed.substr(0, 16 + head_bytes);
  plain[8] = 1;
  for (const RankCapture& rank : kept.capture.ranks) {
    const std::vector<std::byte> part = encode_rank_capture(rank);
    plain.append(reinterpret_cast<const char*>(part.data()), part.size());
  }
  EXPECT_GT(plain.size(), 2 * packed.size());
  write(segment, plain);
  ASSERT_EQ(steps_of(read_archive(path())), std::vector<int64_t>{300});
  const Capture capture = read_segment(segment);
  for (std::size_t r = 0; r < 3; ++r)
    EXPECT_EQ(encode_rank_capture(capture.ranks[r]), encode_rank_capture(kept.capture.ranks[r]));
  write(segment, plain.substr(0, plain.size() - 1));
  test::expect_error([&] { read_segment(segment); }, ErrorCode::kInvalidArgument, {segment.string(), "cut off"});
  plain[8] = 3;
  write(segment, plain);
  test::expect_error([&] { read_segment(segment); }, ErrorCode::kInvalidArgument, {segment.string(), "format 3"});
}

TEST_F(StepArchiveTest, GoesOnAfterARestart) {
  fill(5);
  StepArchive archive(path(), kRoom, kBegin);
  EXPECT_EQ(archive.entries().size(), 5U);
  archive.add(make_kept_step(7, kBegin + 60 * kSecond), kBegin + 60 * kSecond);
  EXPECT_EQ(steps_of(read_archive(path())), (std::vector<int64_t>{0, 100, 200, 300, 400, 7}));
  for (const SegmentEntry& entry : archive.entries())
    EXPECT_EQ(read_segment(path() / entry.file).ranks.size(), 3U) << "what it shares with others of its run is there";
}

TEST_F(StepArchiveTest, AReaderNeedsNoLock) {
  StepArchive archive(path(), kRoom, kBegin);
  archive.add(make_kept_step(1, kBegin), kBegin);
  EXPECT_EQ(read_archive(path()).size(), 1U);
  EXPECT_EQ(read_segment(first_segment()).ranks.size(), 3U);
}

TEST_F(StepArchiveTest, ASecondServerIsRefusedInALine) {
  const StepArchive first(path(), kRoom, kBegin);
  test::expect_error([&] { StepArchive(path(), kRoom, kBegin); }, ErrorCode::kFailedPrecondition,
                     {path().string(), "another server's", "allowed"});
}

TEST_F(StepArchiveTest, TheBoundHoldsOnDisk) {
  const int64_t max_bytes = int64_t{1} << 18;
  StepArchive archive(path(), max_bytes, kBegin);
  for (int i = 0; i < 400; ++i) {
    archive.add(make_kept_step(i, kBegin + i * kSecond), kBegin + i * kSecond);
    ASSERT_LE(archive.num_bytes(), max_bytes);
  }
  int64_t on_disk = 0;
  for (const SegmentEntry& entry : read_archive(path())) on_disk += entry.bytes;
  EXPECT_EQ(on_disk, archive.num_bytes());
  EXPECT_LT(archive.entries().size(), 400U);
  EXPECT_EQ(archive.entries().back().facts.step, 399) << "the newest is there";
}

int64_t bytes_of(const fs::path& folder) {
  int64_t bytes = 0;
  for (const auto& file : fs::directory_iterator(folder)) bytes += static_cast<int64_t>(file.file_size());
  return bytes;
}

TEST_F(StepArchiveTest, TheBoundIsThatOfAllFiles) {
  const int64_t max_bytes = int64_t{1} << 18;
  fs::create_directories(path());
  write(path() / "steps-20000.json", std::string(50'000, ' '));
  StepArchive archive(path(), max_bytes, kBegin);
  for (int i = 0; i < 400; ++i) {
    archive.add(make_kept_step(i, kBegin + i * kSecond), kBegin + i * kSecond);
    ASSERT_LE(bytes_of(path()), max_bytes) << i;
  }
}

TEST_F(StepArchiveTest, StepsHaveHalfOfTheBoundWhateverElseThereIs) {
  const int64_t max_bytes = int64_t{1} << 18;
  fs::create_directories(path());
  write(path() / "steps-20000.json", std::string(static_cast<std::size_t>(max_bytes), ' '));
  StepArchive archive(path(), max_bytes, kBegin);
  for (int i = 0; i < 400; ++i) archive.add(make_kept_step(i, kBegin + i * kSecond), kBegin + i * kSecond);
  EXPECT_LE(archive.num_bytes(), max_bytes / 2);
  EXPECT_GT(archive.num_bytes(), max_bytes / 3);
}

TEST_F(StepArchiveTest, OverTheBoundSegmentsThatCannotBeReadGoFirstTheOldestOfThemFirst) {
  fill(10);
  const std::string old = std::to_string(kBegin - 9 * kSecond) + "-1-sample.ferryseg",
                    later = std::to_string(kBegin + 9 * kSecond) + "-2-sample.ferryseg";
  const int64_t bytes = bytes_of(path());
  for (const std::string& name : {later, old}) write(path() / name, std::string(20'000, '?'));
  testing::internal::CaptureStderr();  // that they cannot be read
  const auto open = [&](int64_t max_bytes) { return StepArchive(path(), max_bytes, kBegin).entries().size(); };
  EXPECT_EQ(open(bytes + 45'000), 10U);
  EXPECT_TRUE(fs::exists(path() / old) && fs::exists(path() / later)) << "there is room";
  EXPECT_EQ(open(bytes + 25'000), 10U);
  EXPECT_TRUE(!fs::exists(path() / old) && fs::exists(path() / later));
  EXPECT_EQ(open(bytes + 5'000), 10U) << "no step goes for them";
  EXPECT_FALSE(fs::exists(path() / later));
  testing::internal::GetCapturedStderr();
}

TEST_F(StepArchiveTest, ASegmentOfAnotherBoundIsThinnedAtTheStart) {
  fill(100);
  const int64_t max_bytes = int64_t{1} << 17;
  ASSERT_GT(StepArchive(path(), kRoom, kBegin).num_bytes(), max_bytes);
  const StepArchive archive(path(), max_bytes, kBegin + 1000 * kSecond);
  EXPECT_LE(archive.num_bytes(), max_bytes);
}

TEST_F(StepArchiveTest, ADamagedIndexCostsNothing) {
  fill(6);
  const std::string index = read(path() / "index.jsonl");
  std::mt19937 random(5);
  for (int i = 0; i < 200; ++i) {
    std::string damaged = index;
    switch (random() % 4) {
      case 0: damaged.resize(random() % damaged.size()); break;
      case 1: damaged[random() % damaged.size()] = static_cast<char>(random() % 256); break;
      case 2: damaged.insert(random() % damaged.size(), std::string(random() % 100, '{')); break;
      default: damaged = std::string(random() % 1000, static_cast<char>(random() % 256)); break;
    }
    write(path() / "index.jsonl", damaged);
    EXPECT_EQ(read_archive(path()).size(), 6U) << i;
  }
  fs::remove(path() / "index.jsonl");
  EXPECT_EQ(StepArchive(path(), kRoom, kBegin).entries().size(), 6U);
  EXPECT_EQ(std::ranges::count(read(path() / "index.jsonl"), '\n'), 6) << "and it is there again";
}

TEST_F(StepArchiveTest, IsThereWithoutItsIndexToo) {
  EXPECT_FALSE(holds_archive(path())) << "no folder";
  fill(2);
  EXPECT_TRUE(holds_archive(path()));
  fs::remove(path() / "index.jsonl");
  EXPECT_TRUE(holds_archive(path())) << "steps";
  for (const SegmentEntry& entry : read_archive(path())) fs::remove(path() / entry.file);
  EXPECT_FALSE(holds_archive(path())) << "a lock and a run's file are nothing that can be asked";
  write(path() / "steps-20000.json", "{}");
  EXPECT_TRUE(holds_archive(path())) << "lengths";
}

TEST_F(StepArchiveTest, AnIndexLeadsNowhereElse) {
  fill(1);
  const fs::path outside = path().parent_path() / "outside.ferryseg";
  fs::copy_file(first_segment(), outside);
  std::string line = read(path() / "index.jsonl");
  line.replace(line.find(first_segment().filename().string()), first_segment().filename().string().size(),
               "../outside.ferryseg");
  EXPECT_THROW(parse_entry(line, "line"), Error);
  fs::create_symlink(outside, path() / "9-9-sample.ferryseg");
  EXPECT_EQ(read_archive(path()).size(), 1U) << "a link is no segment";
}

TEST_F(StepArchiveTest, SegmentsThatCannotBeReadAreSaid) {
  fill(3);
  testing::internal::CaptureStderr();
  EXPECT_EQ(read_archive(path()).size(), 3U);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  const std::string name = first_segment().filename().string();
  write(first_segment(), "FERRYSEG");
  testing::internal::CaptureStderr();
  EXPECT_EQ(read_archive(path()).size(), 2U);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "ferry: warning: archive " + path().string() + ": " + name + " cannot be read, and the steps are left out\n");
}

TEST_F(StepArchiveTest, ADamagedSegmentIsAnErrorOfALineOrAnotherCapture) {
  fill(1);
  const fs::path segment = first_segment();
  const std::string whole = read(segment);
  std::mt19937 random(11);
  constexpr int kDamages = test::draws(400, 150);
  int num_refused = 0;
  for (int i = 0; i < kDamages; ++i) {
    std::string damaged = whole;
    if (i % 2 == 0) {
      damaged.resize(random() % damaged.size());
    } else {
      damaged[random() % std::min<std::size_t>(damaged.size(), 3000)] = static_cast<char>(random() % 256);
    }
    write(segment, damaged);
    try {
      read_segment(segment);
    } catch (const Error& error) {
      ++num_refused;
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    }
    EXPECT_NO_THROW(read_archive(path())) << i;
  }
  EXPECT_GE(num_refused, kDamages / 2) << "whatever is cut off, at least";
}

TEST_F(StepArchiveTest, ATornSegmentCostsItselfAlone) {
  fill(3);
  const std::vector<SegmentEntry> all = read_archive(path());
  const fs::path torn = path() / all[1].file;
  const std::string whole = read(torn);
  for (const std::size_t size : {whole.size() - 1, whole.size() / 2, std::size_t{20}, std::size_t{0}}) {
    write(torn, whole.substr(0, size));
    const Capture capture = read_chosen(path(), all).value();
    const ReportInput input(capture);
    ASSERT_EQ(input.timeline.steps.size(), 2U) << size;
    EXPECT_EQ(input.timeline.steps[0].step, 0U);
    EXPECT_EQ(input.timeline.steps[1].step, 200U);
    EXPECT_EQ(StepArchive(path(), kRoom, kBegin).entries().size(), size > 1000 ? 3U : 2U) << "by its head it is there";
  }
}

TEST_F(StepArchiveTest, ARunThatCannotBeReadIsOneWarning) {
  fill(5);
  const std::vector<SegmentEntry> all = read_archive(path());
  const fs::path run = path() / all.front().run;
  const auto warnings = [&] {
    testing::internal::CaptureStderr();
    EXPECT_FALSE(read_chosen(path(), all).has_value());
    return testing::internal::GetCapturedStderr();
  };
  std::string other_ranks = read(run);
  const std::size_t place = other_ranks.find("\"world_size\": 3");
  ASSERT_NE(place, std::string::npos) << other_ranks;
  other_ranks[place + 14] = '9';
  for (const std::string& damaged : {std::string("{"), std::string(), other_ranks}) {
    write(run, damaged);
    const std::string said = warnings();
    EXPECT_EQ(std::ranges::count(said, '\n'), 1) << said;
    EXPECT_NE(said.find("and 4 more steps"), std::string::npos) << said;
  }
  fs::remove(run);
  const std::string said = warnings();
  EXPECT_EQ(std::ranges::count(said, '\n'), 1) << said;
  EXPECT_NE(said.find(run.string()), std::string::npos) << said;
  EXPECT_EQ(read_archive(path()).size(), 5U) << "they are listed all the same";
}

TEST_F(StepArchiveTest, AWriterThatIsKilledWhileItWritesLeavesNoHalfASegment) {
  fill(2);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    StepArchive archive(path(), kRoom, kBegin);
    const rlimit small{.rlim_cur = 600, .rlim_max = 600};  // the system ends whoever writes more into a file
    const rlimit no_core{};
    std::signal(SIGXFSZ, SIG_DFL);
    setrlimit(RLIMIT_CORE, &no_core);
    setrlimit(RLIMIT_FSIZE, &small);
    archive.add(make_kept_step(900, kBegin + 9 * kSecond), kBegin + 9 * kSecond);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ) << "it was to be killed: " << status;
  EXPECT_EQ(count_half_written(), 1) << "that is where it was killed";
  EXPECT_EQ(steps_of(read_archive(path())), (std::vector<int64_t>{0, 100}));
  StepArchive archive(path(), kRoom, kBegin);  // nobody holds the lock any more
  EXPECT_EQ(count_half_written(), 0);
  archive.add(make_kept_step(900, kBegin + 9 * kSecond), kBegin + 9 * kSecond);
  EXPECT_EQ(steps_of(read_archive(path())), (std::vector<int64_t>{0, 100, 900}));
}

TEST_F(StepArchiveTest, WhatADeadWriterLeftIsCleanedUp) {
  fill(2);
  const std::string bytes = read(first_segment());
  write(path() / "5-5-sample.ferryseg.tmp.1234", bytes.substr(0, bytes.size() / 2));
  write(path() / "run-1-0.json", "{}");  // of no segment
  write(path() / "notes.txt", "of the operator");
  std::ofstream(path() / "index.jsonl", std::ios::app) << "{\"run\":\"run-1";
  const StepArchive archive(path(), kRoom, kBegin);
  EXPECT_EQ(archive.entries().size(), 2U);
  EXPECT_FALSE(fs::exists(path() / "5-5-sample.ferryseg.tmp.1234"));
  EXPECT_FALSE(fs::exists(path() / "run-1-0.json"));
  EXPECT_TRUE(fs::exists(path() / "notes.txt"));
}

TEST_F(StepArchiveTest, AFullDiskIsAnErrorAndNoHalfASegment) {
  StepArchive archive(path(), kRoom, kBegin);
  archive.add(make_kept_step(1, kBegin), kBegin);
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{.rlim_cur = 1000, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  EXPECT_THROW(archive.add(make_kept_step(2, kBegin + kSecond), kBegin), Error);
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(read_archive(path()).size(), 1U);
  EXPECT_EQ(archive.entries().size(), 1U);
  EXPECT_EQ(archive.num_bytes(), read_archive(path()).front().bytes) << "what is not there takes no room";
  archive.add(make_kept_step(3, kBegin + 2 * kSecond), kBegin);
  EXPECT_EQ(steps_of(read_archive(path())), (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(count_half_written(), 0);
}

TEST_F(StepArchiveTest, ChosenStepsAreOneCaptureOfEachStepOnce) {
  {
    StepArchive archive(path(), kRoom, kBegin);
    for (int i = 0; i < 4; ++i) archive.add(make_kept_step(100 * i, kBegin + i * kSecond), kBegin);
    archive.add(make_kept_step(200, kBegin + 2 * kSecond, KeptFor::kSlow), kBegin);  // the same step for another reason
  }
  const ArchiveAnswer found = answer(read_archive(path()), {.from_ns = kBegin, .to_ns = kBegin + 10 * kSecond});
  EXPECT_EQ(found.chosen.size(), 5U);
  const Capture capture = read_chosen(path(), found.chosen).value();
  EXPECT_EQ(capture.info.start_epoch_ns, kBegin);
  int64_t num_selected = 0;
  for (const auto& [why, count] : capture.info.selection) num_selected += count;
  EXPECT_EQ(num_selected, 4) << "each step once";
  const ReportInput input(capture);
  ASSERT_EQ(input.timeline.steps.size(), 4U);
  for (std::size_t s = 0; s < 4; ++s) EXPECT_EQ(input.timeline.steps[s].step, 100 * s);
  EXPECT_EQ(input.timeline.num_unpaired, 0) << "rows and replies find each other";
  EXPECT_EQ(input.timeline.num_causality_violations, 0);
  const Capture one = make_kept_step(0, kBegin).capture;
  EXPECT_EQ(capture.info.expert_tokens[0][0], 4 * one.info.expert_tokens[0][0]);
}

TEST(JoinedSteps, AStepThatTwoHaveIsThereOnce) {
  const Capture sample = make_kept_step(100, kBegin).capture;
  Capture anomaly = make_kept_step(200, kBegin).capture;  // with the step before it
  for (std::size_t r = 0; r < anomaly.ranks.size(); ++r) {
    anomaly.ranks[r].begin = sample.ranks[r].begin + 1;
    for (std::size_t t = 0; t < anomaly.ranks[r].threads.size(); ++t) {
      const std::vector<SpanRecord>& before = sample.ranks[r].threads[t].records;
      std::vector<SpanRecord>& records = anomaly.ranks[r].threads[t].records;
      records.insert(records.begin(), before.begin(), before.end());
    }
  }
  const auto count = [](const Capture& capture, uint32_t step) {
    int64_t num_records = 0;
    for (const RankCapture& rank : capture.ranks)
      for (const ThreadCapture& thread : rank.threads)
        num_records += std::ranges::count(thread.records, step, &SpanRecord::step);
    return num_records;
  };
  const Capture joined = join_steps({sample, anomaly});
  EXPECT_EQ(count(joined, 100), count(sample, 100));
  EXPECT_EQ(count(joined, 200), count(anomaly, 200));
  EXPECT_EQ(ReportInput(joined).timeline.steps.size(), 2U);
}

TEST_F(StepArchiveTest, QuestionsFindWhatTheyAreAbout) {
  std::vector<SegmentEntry> all;
  for (int i = 0; i < 1000; ++i) {
    all.push_back({.file = std::to_string(i),
                   .run = "run-1-0.json",
                   .time_ns = kBegin + i * kSecond,
                   .why = i == 500 ? KeptFor::kStopped : KeptFor::kSample,
                   .facts = {.step = i, .seconds = 1e-3 * (i % 100), .phase = i % 2 == 0 ? Phase::kDecode : Phase::kPrefill}});
  }
  const ArchiveAnswer slowest =
      answer(all, {.from_ns = kBegin, .to_ns = kBegin + 400 * kSecond, .phase = Phase::kDecode, .num_slowest = 3});
  EXPECT_EQ(steps_of(slowest.chosen), (std::vector<int64_t>{98, 198, 298}));
  const ArchiveAnswer around =
      answer(all, {.from_ns = kBegin + 400 * kSecond, .to_ns = kBegin + 999 * kSecond, .at_ns = kBegin + 700 * kSecond});
  EXPECT_EQ(around.steps.size(), 600U);
  EXPECT_EQ(around.chosen.size(), kMaxChosen);
  EXPECT_EQ(around.chosen.front().facts.step, 500) << "what stood out, then what is nearest";
  EXPECT_EQ(around.chosen.back().facts.step, 731);
  const int64_t later = kBegin + 5000 * kSecond;
  const ArchiveAnswer nearest = answer(all, {.from_ns = later - kAroundNs, .to_ns = later + kAroundNs, .at_ns = later});
  EXPECT_TRUE(nearest.is_elsewhere);
  EXPECT_EQ(nearest.steps.size(), kNearest);
  EXPECT_EQ(nearest.steps.back().facts.step, 999);
  EXPECT_TRUE(answer({}, {.at_ns = later}).chosen.empty());
  all.push_back({.file = "x", .run = "run-2-0.json", .time_ns = kBegin + 1000 * kSecond, .facts = {.step = 0}});
  EXPECT_EQ(answer(all, {.from_ns = kBegin, .to_ns = kBegin + 2000 * kSecond, .num_slowest = 64}).chosen.size(), kMaxChosen);
  const ArchiveAnswer two = answer(all, {.from_ns = kBegin + 990 * kSecond, .to_ns = kBegin + 2000 * kSecond});
  EXPECT_EQ(steps_of(two.chosen), std::vector<int64_t>{0}) << "steps of two runs are not one capture";
}

}  // namespace
}  // namespace ferry
