#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "profiler/export/sqlite_file.h"

// The tables of ascend_pytorch_profiler_<rank>.db, by the names and columns that its readers ask for. Times are ns from the
// same zero as in the folder's text files; most texts are numbers of rows of STRING_IDS.

namespace ferry {

// Rows of the enumerations.
enum class ApiType : int32_t { kRuntime = 5000, kCommunication = 5500, kNode = 10000, kModel = 15000, kOperator = 50001 };
enum class HcclDataType : int32_t { kInt8 = 0 };
enum class HcclTransport : int32_t { kSdma = 0, kRdma = 1 };
enum class HcclLink : int32_t { kHccs = 1, kRoce = 3 };
inline constexpr int kHcclNone = 255;
inline constexpr int kMstxRange = 2;

/// The texts of a database, each once.
class StringIds {
 public:
  explicit StringIds(SqliteFile& file) : table_(file, "STRING_IDS", "id INTEGER PRIMARY KEY, value TEXT") {}

  int64_t id_of(std::string_view text);

 private:
  SqliteTable table_;
  std::unordered_map<std::string, int64_t> ids_;
};

struct ProfilerTables {
  explicit ProfilerTables(SqliteFile& file);

  StringIds strings;
  SqliteTable meta_data, rank_device, host, npu, step_time;
  SqliteTable framework_api, connections, cann_api, task, compute_task, ranges;
  SqliteTable communication_operator, communication_task, overlap;
};

}  // namespace ferry
