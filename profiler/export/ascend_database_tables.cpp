#include "profiler/export/ascend_database_tables.h"

#include <initializer_list>
#include <utility>

#include "profiler/export/ascend_overlap.h"

namespace ferry {
namespace {

void write_enumeration(SqliteFile& file, std::string_view name, std::initializer_list<std::pair<int, const char*>> rows) {
  SqliteTable table(file, name, "id INTEGER PRIMARY KEY, name TEXT");
  for (const auto& [id, text] : rows) table.insert(id, text);
}

void write_enumerations(SqliteFile& file) {
  write_enumeration(file, "ENUM_API_TYPE",
                    {{5000, "runtime"},
                     {5500, "communication"},
                     {10000, "node"},
                     {15000, "model"},
                     {20000, "acl"},
                     {50001, "op"},
                     {50002, "queue"},
                     {50003, "trace"},
                     {50004, "mstx"}});
  write_enumeration(file, "ENUM_HCCL_DATA_TYPE",
                    {{0, "INT8"},
                     {1, "INT16"},
                     {2, "INT32"},
                     {3, "FP16"},
                     {4, "FP32"},
                     {5, "INT64"},
                     {6, "UINT64"},
                     {7, "UINT8"},
                     {8, "UINT16"},
                     {9, "UINT32"},
                     {10, "FP64"},
                     {11, "BFP16"},
                     {12, "INT128"},
                     {kHcclNone, "RESERVED"}});
  write_enumeration(file, "ENUM_HCCL_LINK_TYPE",
                    {{0, "ON_CHIP"},
                     {1, "HCCS"},
                     {2, "PCIE"},
                     {3, "ROCE"},
                     {4, "SIO"},
                     {5, "HCCS_SW"},
                     {6, "STANDARD_ROCE"},
                     {kHcclNone, "RESERVED"}});
  write_enumeration(file, "ENUM_HCCL_TRANSPORT_TYPE", {{0, "SDMA"}, {1, "RDMA"}, {2, "LOCAL"}, {kHcclNone, "RESERVED"}});
  write_enumeration(file, "ENUM_HCCL_RDMA_TYPE", {{0, "RDMA_SEND_NOTIFY"}, {1, "RDMA_SEND_PAYLOAD"}, {kHcclNone, "RESERVED"}});
  write_enumeration(file, "ENUM_MSTX_EVENT_TYPE", {{0, "marker"}, {1, "push/pop"}, {kMstxRange, "start/end"}});
  SqliteTable overlap(file, "ENUM_OVERLAP_ANALYSIS_TYPE", "id INTEGER PRIMARY KEY, name TEXT");
  for (std::size_t i = 0; i < kOverlapNames.size(); ++i) overlap.insert(i, kOverlapNames[i]);
}

}  // namespace

int64_t StringIds::id_of(std::string_view text) {
  const auto [known, is_new] = ids_.try_emplace(std::string(text), static_cast<int64_t>(ids_.size()));
  if (is_new) table_.insert(known->second, text);
  return known->second;
}

ProfilerTables::ProfilerTables(SqliteFile& file)
    : strings(file),
      meta_data(file, "META_DATA", "name TEXT, value TEXT"),
      rank_device(file, "RANK_DEVICE_MAP", "rankId INTEGER, deviceId INTEGER"),
      host(file, "HOST_INFO", "hostUid TEXT, hostName TEXT"),
      npu(file, "NPU_INFO", "id INTEGER, name TEXT"),
      step_time(file, "STEP_TIME", "id INTEGER, startNs INTEGER, endNs INTEGER"),
      framework_api(file, "PYTORCH_API",
                    "startNs INTEGER, endNs INTEGER, globalTid INTEGER, connectionId INTEGER, name INTEGER, "
                    "sequenceNumber INTEGER, fwdThreadId INTEGER, inputDtypes INTEGER, inputShapes INTEGER, "
                    "callchainId INTEGER, type INTEGER"),
      connections(file, "CONNECTION_IDS", "id INTEGER, connectionId INTEGER"),
      cann_api(file, "CANN_API",
               "startNs INTEGER, endNs INTEGER, type INTEGER, globalTid INTEGER, connectionId INTEGER PRIMARY KEY, "
               "name INTEGER"),
      task(file, "TASK",
           "startNs INTEGER, endNs INTEGER, deviceId INTEGER, connectionId INTEGER, globalTaskId INTEGER PRIMARY KEY, "
           "globalPid INTEGER, taskType INTEGER, contextId INTEGER, streamId INTEGER, taskId INTEGER, modelId INTEGER"),
      compute_task(file, "COMPUTE_TASK_INFO",
                   "name INTEGER, globalTaskId INTEGER PRIMARY KEY, blockNum INTEGER, mixBlockNum INTEGER, taskType INTEGER, "
                   "opType INTEGER, inputFormats INTEGER, inputDataTypes INTEGER, inputShapes INTEGER, "
                   "outputFormats INTEGER, outputDataTypes INTEGER, outputShapes INTEGER, attrInfo INTEGER, "
                   "opState INTEGER, hf32Eligible INTEGER"),
      ranges(file, "MSTX_EVENTS",
             "startNs INTEGER, endNs INTEGER, eventType INTEGER, rangeId INTEGER, category INTEGER, message INTEGER, "
             "globalTid INTEGER, endGlobalTid INTEGER, domainId INTEGER, connectionId INTEGER"),
      communication_operator(file, "COMMUNICATION_OP",
                             "opName INTEGER, startNs INTEGER, endNs INTEGER, connectionId INTEGER, groupName INTEGER, "
                             "opId INTEGER PRIMARY KEY, relay INTEGER, retry INTEGER, dataType INTEGER, algType INTEGER, "
                             "count NUMERIC, opType INTEGER, deviceId INTEGER"),
      communication_task(file, "COMMUNICATION_TASK_INFO",
                         "name INTEGER, globalTaskId INTEGER PRIMARY KEY, taskType INTEGER, planeId INTEGER, "
                         "groupName INTEGER, notifyId INTEGER, rdmaType INTEGER, srcRank INTEGER, dstRank INTEGER, "
                         "transportType INTEGER, size INTEGER, dataType INTEGER, linkType INTEGER, opId INTEGER, "
                         "isMaster INTEGER, bandwidth NUMERIC"),
      overlap(file, "OVERLAP_ANALYSIS",
              "id INTEGER PRIMARY KEY AUTOINCREMENT, deviceId INTEGER, startNs INTEGER, endNs INTEGER, type INTEGER") {
  write_enumerations(file);
}

}  // namespace ferry
