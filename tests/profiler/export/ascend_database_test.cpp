#include <gtest/gtest.h>
#include <sqlite3.h>

#include <map>
#include <string>
#include <utility>

#include "profiler/export/sqlite_file.h"
#include "runtime/base/error.h"
#include "tests/profiler/export/ascend_folder.h"
#include "tests/support/expect_error.h"
#include "tests/support/made_capture.h"
#include "tests/support/small_capture.h"

namespace ferry {
namespace {

/// A database that is read back.
class Database {
 public:
  explicit Database(const std::filesystem::path& path) {
    EXPECT_EQ(sqlite3_open_v2(path.c_str(), &database_, SQLITE_OPEN_READONLY, nullptr), SQLITE_OK) << path;
  }
  ~Database() { sqlite3_close_v2(database_); }
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  /// Rows of a query, columns as texts.
  std::vector<std::vector<std::string>> rows(const std::string& sql) const {
    sqlite3_stmt* query = nullptr;
    EXPECT_EQ(sqlite3_prepare_v2(database_, sql.c_str(), -1, &query, nullptr), SQLITE_OK) << sqlite3_errmsg(database_);
    std::vector<std::vector<std::string>> result;
    while (sqlite3_step(query) == SQLITE_ROW) {
      auto& row = result.emplace_back();
      for (int c = 0; c < sqlite3_column_count(query); ++c) {
        const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(query, c));
        row.emplace_back(text == nullptr ? "" : text);
      }
    }
    sqlite3_finalize(query);
    return result;
  }
  int64_t number(const std::string& sql) const { return std::stoll(rows(sql).at(0).at(0)); }

 private:
  sqlite3* database_ = nullptr;
};

constexpr const char* kKernels =
    "SELECT type.value, count(*), sum(endNs - startNs) FROM COMPUTE_TASK_INFO AS info JOIN TASK USING (globalTaskId) "
    "JOIN STRING_IDS AS type ON type.id = opType GROUP BY 1";

std::filesystem::path output_of(const test::AscendFolders& folders, int32_t rank) {
  return folders.folder(rank) / "ASCEND_PROFILER_OUTPUT";
}
Database profiler_of(const test::AscendFolders& folders, int32_t rank) {
  return Database(output_of(folders, rank) / ("ascend_pytorch_profiler_" + std::to_string(rank) + ".db"));
}

TEST(AscendDatabase, KernelsAreThoseOfTheTable) {
  const test::AscendFolders folders{ReportInput(make_made_capture())};
  for (int32_t rank = 0; rank < 3; ++rank) {
    std::map<std::string, std::pair<int64_t, int64_t>> table, found;
    for (const test::CsvRow& row : test::read_csv(output_of(folders, rank) / "op_statistic.csv")) {
      auto& [count, ns] = table[row.at("OP Type")];
      count += std::stoll(row.at("Count"));
      ns += test::us_to_ns(row.at("Total Time(us)"));
    }
    const Database database = profiler_of(folders, rank);
    for (const auto& row : database.rows(kKernels)) found[row[0]] = {std::stoll(row[1]), std::stoll(row[2])};
    EXPECT_EQ(found, table) << rank;
    EXPECT_GT(found.size(), 2U);
  }
}

TEST(AscendDatabase, EveryKernelLeadsToItsCalls) {
  const test::AscendFolders folders{ReportInput(make_made_capture())};
  const Database database = profiler_of(folders, 0);
  const int64_t kernels = database.number("SELECT count(*) FROM COMPUTE_TASK_INFO");
  EXPECT_EQ(database.number("SELECT count(*) FROM COMPUTE_TASK_INFO JOIN TASK USING (globalTaskId) JOIN CANN_API USING "
                            "(connectionId) JOIN CONNECTION_IDS ON CONNECTION_IDS.connectionId = TASK.connectionId "
                            "JOIN PYTORCH_API ON PYTORCH_API.connectionId = CONNECTION_IDS.id "
                            "WHERE PYTORCH_API.startNs = TASK.startNs AND PYTORCH_API.name = COMPUTE_TASK_INFO.name"),
            kernels);
  EXPECT_EQ(database.number("SELECT count(*) FROM TASK AS a JOIN TASK AS b USING (globalTaskId)"),
            database.number("SELECT count(*) FROM TASK"));
}

TEST(AscendDatabase, CommunicationIsThatOfTheText) {
  const test::AscendFolders folders{ReportInput(make_made_capture())};
  for (int32_t rank = 0; rank < 3; ++rank) {
    const auto text = folders.json(rank, "communication.json");
    int64_t count = 0, elapse = 0, bytes = 0;
    for (const auto& [step, kinds] : text.items()) {
      for (const auto& [name, facts] : kinds.at("collective").items()) {
        if (name == "Total Op Info") continue;
        ++count;
        elapse += test::millionths(facts.at("Communication Time Info").at("Elapse Time(ms)"));
        const auto& ways = facts.at("Communication Bandwidth Info");
        for (const char* way : {"RDMA", "HCCS"}) {
          if (ways.contains(way)) bytes += test::millionths(ways.at(way).at("Transit Size(MB)"));
        }
      }
    }
    const Database database = profiler_of(folders, rank), analysis(output_of(folders, rank) / "analysis.db");
    const std::string operators = " FROM COMMUNICATION_OP";
    EXPECT_EQ(database.number("SELECT count(DISTINCT opName)" + operators), count);
    EXPECT_EQ(database.number("SELECT sum(endNs - startNs)" + operators), elapse);
    EXPECT_EQ(database.number("SELECT sum(count)" + operators), bytes);
    EXPECT_EQ(analysis.number("SELECT round(sum(elapse_time) * 1e6) FROM CommAnalyzerTime"), elapse);
    EXPECT_EQ(analysis.number("SELECT round(sum(transit_size) * 1e6) FROM CommAnalyzerMatrix"), bytes);
  }
}

TEST(AscendDatabase, StepsAreThoseOfTheText) {
  const test::AscendFolders folders{ReportInput(make_made_capture())};
  const auto table = test::read_csv(output_of(folders, 1) / "step_trace_time.csv");
  const Database analysis(output_of(folders, 1) / "analysis.db");
  const auto rows = analysis.rows("SELECT step, computing, communication, free FROM StepTraceTime");
  ASSERT_EQ(rows.size(), table.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i][0], table[i].at("Step"));
    EXPECT_EQ(test::us_to_ns(rows[i][1]), test::us_to_ns(table[i].at("Computing")));
    EXPECT_EQ(test::us_to_ns(rows[i][2]), test::us_to_ns(table[i].at("Communication")));
    EXPECT_EQ(test::us_to_ns(rows[i][3]), test::us_to_ns(table[i].at("Free")));
  }
}

TEST(AscendDatabase, NamesMayBeAnything) {
  Capture capture = make_made_capture();
  const std::string hostile("'; DROP TABLE TASK; --\"\0\xff{", 27);
  capture.info.model.name = capture.info.command = capture.info.transport = hostile;
  for (RankCapture& rank : capture.ranks) rank.host = rank.boot_id = rank.threads[0].name = rank.device.name = hostile;
  capture.info.model.layer_types.assign(4, hostile);
  for (OperatorFacts& facts : capture.info.model.operators) {
    for (TensorFacts& tensor : facts.inputs) tensor.type = hostile;
  }
  const test::AscendFolders folders{ReportInput(std::move(capture))};
  const Database database = profiler_of(folders, 0);
  EXPECT_GT(database.number("SELECT count(*) FROM TASK"), 10);
  EXPECT_EQ(database.rows("SELECT hostName FROM HOST_INFO")[0][0], "'; DROP TABLE TASK; --\"");
  EXPECT_EQ(database.rows("PRAGMA integrity_check")[0][0], "ok");
}

TEST(AscendDatabase, ADevicesTasksJoinTheLaunchOfTheirThread) {
  const test::AscendFolders folders{ReportInput(test::device_capture().capture)};
  const auto rows =
      profiler_of(folders, 0)
          .rows(
              "SELECT name.value, TASK.endNs - TASK.startNs, CANN_API.endNs - CANN_API.startNs, PYTORCH_API.endNs - "
              "PYTORCH_API.startNs "
              "FROM COMPUTE_TASK_INFO AS info JOIN TASK USING (globalTaskId) JOIN STRING_IDS AS name ON name.id = info.name "
              "JOIN CANN_API USING (connectionId) JOIN CONNECTION_IDS USING (connectionId) "
              "JOIN PYTORCH_API ON PYTORCH_API.connectionId = CONNECTION_IDS.id WHERE TASK.streamId = 1 ORDER BY TASK.startNs");
  // Calls that end where the next begins are shown a nanosecond shorter; nobody saw who asked for the copy.
  EXPECT_EQ(rows, (std::vector<std::vector<std::string>>{{"Add", "500", "100", "99"},
                                                         {"MatMul.o_proj", "1500", "200", "199"},
                                                         {"Add", "500", "100", "100"},
                                                         {"Add", "1000", "100", "100"},
                                                         {"Memcpy", "200", "0", "0"}}));
}

TEST(AscendDatabase, TextAndTablesCountConnectionsAlike) {
  const test::AscendFolders folders{ReportInput(make_made_capture())};
  for (int32_t rank = 0; rank < 3; ++rank) {
    std::map<int64_t, std::string> text, table;
    for (const auto& event : folders.json(rank, "trace_view.json")) {
      if (event.value("cat", "").empty() && event.at("ph") == "X" && event.at("args").contains("connection_id"))
        text[event["args"]["connection_id"]] = event.at("name");
    }
    const Database database = profiler_of(folders, rank);
    for (const auto& row : database.rows("SELECT connectionId, value FROM COMPUTE_TASK_INFO JOIN TASK USING (globalTaskId) "
                                         "JOIN STRING_IDS ON id = name"))
      table[std::stoll(row[0])] = row[1];
    for (const auto& row : database.rows("SELECT connectionId, value FROM COMMUNICATION_OP JOIN STRING_IDS ON id = opName")) {
      const std::string& name = text.at(std::stoll(row[0]));  // without the step
      EXPECT_EQ(row[1].substr(0, row[1].find("__")), name.substr(0, name.find("__")));
      text.erase(std::stoll(row[0]));
    }
    EXPECT_EQ(text, table);
  }
}

MemorySample memory_sample(uint64_t ticks, int64_t weights, int64_t buffers, int64_t anonymous, int64_t files) {
  MemorySample made{.ticks = ticks};
  made.bytes.fill(kNotKnown);
  made[MemoryKind::kWeights] = weights;
  made[MemoryKind::kBuffers] = buffers;
  made[MemoryKind::kAnonymous] = anonymous;
  made[MemoryKind::kFiles] = files;
  return made;
}

TEST(AscendDatabase, MemoryIsThatOfTheSamples) {
  constexpr int64_t kMb = 1 << 20;
  test::SmallCapture small(1, 10'000'000);
  small.step(0, Phase::kDecode, 1000, 9'000'000, 1, 1);
  small.capture.ranks[0].peak_rss_bytes = 100 * kMb;
  small.capture.ranks[0].memory.samples = {memory_sample(1'000'000, 5 * kMb, 1 * kMb, 7 * kMb, 2 * kMb),
                                           memory_sample(2'000'000, 5 * kMb, 4 * kMb, 10 * kMb, 2 * kMb),
                                           memory_sample(3'000'000, 5 * kMb, 2 * kMb, 8 * kMb, 2 * kMb)};
  const test::AscendFolders folders{ReportInput(small.capture)};
  std::vector<std::string> lines;
  for (const test::CsvRow& row : folders.csv(0, "memory_record.csv"))
    lines.push_back(row.at("Component") + " " + row.at("Timestamp(us)").substr(0, 8) + " " +
                    std::to_string(std::stoll(row.at("Total Allocated(MB)"))) + " " +
                    std::to_string(std::stoll(row.at("Total Reserved(MB)"))));
  EXPECT_EQ(lines, (std::vector<std::string>{"APP 2000.000 9 9", "PTA+GE 2000.000 6 7", "APP 3000.000 12 12",
                                             "PTA+GE 3000.000 9 10", "APP 4000.000 10 10", "PTA+GE 4000.000 7 8"}));
  // Blocks of a use add up to it at every sample; what is held still has no release.
  std::map<std::string, std::map<int64_t, int64_t>> held, used;  // by use and sample, KB
  bool has_open = false;
  for (const test::CsvRow& row : folders.csv(0, "operator_memory.csv")) {
    has_open |= row.at("Release Time(us)").empty();
    for (const int64_t at_us : {2000, 3000, 4000}) {
      const bool is_released = !row.at("Release Time(us)").empty() && std::stod(row.at("Release Time(us)")) <= double(at_us);
      if (std::stod(row.at("Allocation Time(us)")) <= double(at_us) && !is_released)
        held[row.at("Name")][at_us] += std::llround(std::stod(row.at("Size(KB)")));
    }
  }
  for (const test::CsvRow& row : folders.csv(0, "npu_module_mem.csv"))
    used[row.at("Component")][std::llround(std::stod(row.at("Timestamp(us)")))] =
        std::llround(1024 * std::stod(row.at("Total Reserved(MB)")));
  EXPECT_TRUE(has_open);
  EXPECT_EQ(held, used);
  EXPECT_EQ(used.at("buffers"), (std::map<int64_t, int64_t>{{2000, 1024}, {3000, 4096}, {4000, 2048}}));
  const Database database = profiler_of(folders, 0);
  EXPECT_EQ(database.number("SELECT max(totalReserved) FROM MEMORY_RECORD"), 12 * kMb);
  EXPECT_EQ(database.number("SELECT sum(size) FROM OP_MEMORY WHERE releaseTime IS NULL"), 10 * kMb);
  EXPECT_EQ(database.number("SELECT sum(size) FROM OP_MEMORY WHERE releaseTime = 4000000"), 2 * kMb);
  EXPECT_EQ(database.number("SELECT sum(totalReserved) FROM NPU_MODULE_MEM WHERE timestamp = 3000000"), 12 * kMb);
}

TEST(AscendDatabase, WithoutSamplesMemoryIsThePeak) {
  const test::AscendFolders folders{ReportInput(make_made_capture())};
  EXPECT_EQ(profiler_of(folders, 1).number("SELECT max(totalReserved) FROM MEMORY_RECORD"), 2 << 20);
  const auto record = test::read_csv(output_of(folders, 1) / "memory_record.csv");
  ASSERT_EQ(record.size(), 2U);
  EXPECT_EQ(std::stod(record[1].at("Total Reserved(MB)")), 2);
  const auto blocks = test::read_csv(output_of(folders, 1) / "operator_memory.csv");
  ASSERT_EQ(blocks.size(), 1U);
  EXPECT_EQ(std::stod(blocks[0].at("Size(KB)")), 2048);
  EXPECT_EQ(std::stod(blocks[0].at("Release Total Active(MB)")), 2);
}

TEST(SqliteFile, WhatCannotBeWrittenIsSaid) {
  const test::TempFolder folder;
  test::expect_error([&] { const SqliteFile file(folder.path() / "missing" / "x.db"); }, ErrorCode::kUnavailable,
                     {"x.db' cannot be written", "unable to open"});
}

TEST(SqliteFile, ReplacesWhatWasThere) {
  const test::TempFolder folder;
  for (int i = 0; i < 2; ++i) {
    SqliteFile file(folder.path() / "x.db");
    SqliteTable(file, "T", "a INTEGER, b TEXT, c NUMERIC").insert(i, "x", nullptr);
    file.close();
  }
  EXPECT_EQ(Database(folder.path() / "x.db").rows("SELECT a, b, c FROM T"),
            (std::vector<std::vector<std::string>>{{"1", "x", ""}}));
}

}  // namespace
}  // namespace ferry
